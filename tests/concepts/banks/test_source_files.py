"""Names of a definition among the files of a source."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.source_files import collected, image_of, matching, one_file, patient_of
from retinabench.core.errors import InputError
from retinabench.data.ingest.archives import Files, open_files

NAMES = {"set/a/images/1.jpg", "set/a/images/2.png", "set/b/images/1.jpg", "set/b/train.csv", "images/3.jpg"}


def test_a_pattern_fits_the_last_parts_of_a_path(tmp_path):
    files = Files(tmp_path, loose=NAMES)
    assert matching(files, "images/*.jpg") == [
        ("images/3.jpg", ""), ("set/a/images/1.jpg", "set/a/"), ("set/b/images/1.jpg", "set/b/"),
    ]  # fmt: skip
    assert one_file(files, "train.csv") == ("set/b/train.csv", "set/b/")
    assert one_file(files, "b/*.csv") == ("set/b/train.csv", "set/")
    with pytest.raises(InputError, match=r"holds no file 'test\.csv'"):
        one_file(files, "test.csv")
    with pytest.raises(InputError, match=r"holds 2 files '1.jpg'.*such as set/a/images/"):
        one_file(files, "1.jpg")


def test_images_are_named_by_what_tells_them_apart(tmp_path):
    definition, files = find_definition("folder"), Files(tmp_path, loose=NAMES)

    def named(*names):
        return collected(
            definition, files, names, ["x"], np.zeros((len(names), 1), np.int8)
        ).sample_id.tolist()

    assert named("set/a/images/1.jpg", "set/a/images/2.png") == ["1", "2"]
    assert named("set/a/images/1.jpg", "set/b/images/1.jpg") == ["set/a/images/1", "set/b/images/1"]
    with pytest.raises(InputError, match="is named twice"):
        named("images/3.jpg", "images/3.jpg")
    with pytest.raises(InputError, match="holds no image"):
        named()


def test_a_patient_is_found_in_the_name_of_an_image():
    assert patient_of("train/patient007/study1.jpg", r"patient\d+") == "patient007"
    assert patient_of("train/x.jpg", r"patient\d+") == patient_of("train/x.jpg", None) == "train/x.jpg"


def test_an_image_is_padded_to_a_square(tmp_path):
    Image.new("RGB", (20, 10), (200, 10, 10)).save(tmp_path / "a.png")
    square = image_of(open_files(tmp_path), "a.png", 40, "whole")
    assert square.shape == (40, 40, 3)
    assert square[20].max() == 200
    assert square[2].max() == 0
