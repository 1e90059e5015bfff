"""EyePACS in each form in which it is shipped, and its label files."""

import shutil
from dataclasses import fields

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.archives import open_files
from retinabench.data.datasets import eyepacs
from retinabench.data.labels import Survey
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.kaggle_layout import write_eyepacs

SHARE = 0.001  # of EyePACS's patients: 18 + 5 + 21


def same(one, two):
    return all(
        np.array_equal(getattr(one, c.name), getattr(two, c.name))
        for c in fields(one)
        if c.name != "p_referable"
    )


@pytest.mark.parametrize("form", ["zip", "parts"])
def test_eyepacs_reads_alike_from_folders_and_archives(tmp_path, form):
    loose = eyepacs.records(write_eyepacs(tmp_path / "loose", "folder", share=SHARE))
    packed = eyepacs.records(write_eyepacs(tmp_path / "packed", form, share=SHARE))
    assert len(loose) == 2 * (18 + 5 + 21)
    assert same(loose, packed)
    read = DATASETS.find("eyepacs").image
    for source in loose.source[::9].tolist():
        pictures = [read(source, tmp_path / where, Recipe(24)) for where in ("loose", "packed")]
        assert np.array_equal(*pictures)


@pytest.mark.slow
def test_eyepacs_at_full_size_from_zips_in_parts(tmp_path):
    survey = Survey()
    records = eyepacs.records(write_eyepacs(tmp_path, "parts"), survey=survey)
    assert len(records) == 88_702
    assert survey == Survey()
    row = int(np.flatnonzero(records.image_id == "44351_right")[0])
    assert (records.patient_id[row], records.eye[row]) == ("44351", "right")
    assert str(records.source[row]).endswith("/44351_right.jpeg")


def test_the_sample_folder_of_kaggle_is_not_taken_for_training_images(tmp_path):
    write_eyepacs(tmp_path, "folder", share=SHARE)
    shutil.copytree(tmp_path / "train", tmp_path / "a_sample")
    survey = Survey()
    records = eyepacs.records(tmp_path, survey=survey)
    assert {source.split("/")[0] for source in records.source.tolist()} == {"train", "test"}
    assert not survey.no_label


GOOD = "image,level\n1_left,0\n1_right,3\n"


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        ("image,level\n1_left,7\n", None, "trainLabels.csv, row 1, column 'level': is '7'"),
        ("image,level\nleft_1,1\n", None, "row 1, column 'image': 'left_1' is not <patient>_"),
        (None, "image,level,Usage\n9_left,1,Publik\n", "column 'Usage': is 'Publik'. Did you mean 'Public'"),
        (None, "image,level\n9_left,1\n", "column 'Usage': is missing"),
        (None, "image,level,Usage\n1_left,1,Public\n", "'1_left' is in trainLabels.csv too"),
    ],
)
def test_bad_eyepacs_labels_are_named(tmp_path, train, test, says):
    (tmp_path / "trainLabels.csv").write_text(train or GOOD)
    (tmp_path / "retinopathy_solution.csv").write_text(test or "image,level,Usage\n9_left,1,Public\n")
    with pytest.raises(InputError, match=says):
        eyepacs.labels(open_files(tmp_path))


def test_missing_test_labels_say_how_to_get_them(tmp_path):
    (tmp_path / "trainLabels.csv").write_text(GOOD)
    says = r"no retinopathy_solution.csv. Add --download: .* Or go on without its images: add --on-bad skip\."
    with pytest.raises(InputError, match=says):
        eyepacs.labels(open_files(tmp_path))


@pytest.mark.parametrize(
    ("absent", "splits"),
    [("retinopathy_solution.csv", {"train"}), ("trainLabels.csv", {"validation"})],
)
def test_one_part_of_eyepacs_is_read_where_what_is_missing_may_be_left_out(tmp_path, absent, splits):
    (tmp_path / "trainLabels.csv").write_text(GOOD)
    (tmp_path / "retinopathy_solution.csv").write_text("image,level,Usage\n9_left,1,Public\n")
    (tmp_path / absent).unlink()
    survey = Survey(skips=True)
    assert set(eyepacs.labels(open_files(tmp_path), survey).split.tolist()) == splits
    assert survey.notes == [f"no {absent}, so its images are left out"]
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"holds no trainLabels\.csv"):
        eyepacs.labels(open_files(tmp_path), survey)
