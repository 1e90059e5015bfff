"""What a data set declares: where its images come from, its card and its options."""

import io
import zipfile
from pathlib import Path

import pytest

from retinabench.core.errors import InputError
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS


def test_a_corrupt_image_in_an_archive_is_named(tmp_path):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("x.jpg", b"\xff\xd8 broken")
    (tmp_path / "images.zip").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match=r"images\.zip: x\.jpg"):
        DATASETS.find("folder").image("x.jpg", tmp_path, Recipe(16))


def test_options_are_checked_and_the_card_is_the_docstring_of_the_module():
    """Here: of this module, which defines `records`."""
    data = ImageDataset(records, "Ask for them.", options=("split",))
    assert data.card.startswith("What a data set declares")
    data.check_options("ours", Path("somewhere"), {"split": "test"})
    DATASETS["synthetic"].check_options("synthetic", None, {"images": 64, "seed": 1})
    with pytest.raises(InputError, match="--column is not an option of the data set 'ours'"):
        data.check_options("ours", Path("somewhere"), {"columns": {}})
    with pytest.raises(InputError, match=r"ours is read from files.*--source\. Ask for them\."):
        data.check_options("ours", None, {})


def records(source):
    """No records."""
