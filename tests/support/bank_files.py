"""Files in the layouts of concept banks, for the tests of their readers."""

import csv

import pytest
from PIL import Image

from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.tables import read_images
from retinabench.core.errors import InputError


def picture(path, size=(24, 16), value=120):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 80, 60)).save(path)


def mask(path, box=None, size=(24, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = Image.new("L", size)
    if box:
        drawn.paste(255, box)
    drawn.save(path)


def table(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([header, *rows])


def opened(name, source):
    return read_images(find_definition(str(name)), source)


def refused(name, source):
    with pytest.raises(InputError) as error:
        opened(name, source)
    assert "\n" not in str(error.value)
    return str(error.value)
