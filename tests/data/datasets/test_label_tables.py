import shutil
import zipfile
from dataclasses import fields

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.archives import open_files
from retinabench.data.label_tables import definition, labels
from retinabench.data.labels import Survey
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.kaggle_layout import drawn, write_aptos, write_eyepacs

SHARE = 0.001  # of EyePACS's patients: 18 + 5 + 21


@pytest.mark.parametrize("form", ["zip", "parts"])
def test_eyepacs_reads_alike_from_folders_and_archives(tmp_path, form):
    loose = DATASETS["eyepacs"].records(write_eyepacs(tmp_path / "loose", "folder", share=SHARE))
    packed = DATASETS["eyepacs"].records(write_eyepacs(tmp_path / "packed", form, share=SHARE))
    assert len(loose) == 2 * (18 + 5 + 21)
    names = [c.name for c in fields(loose) if c.name != "p_referable"]
    assert all(np.array_equal(getattr(loose, name), getattr(packed, name)) for name in names)
    read = DATASETS.find("eyepacs").image
    for source in loose.source[::9].tolist():
        pictures = [read(source, tmp_path / where, Recipe(24)) for where in ("loose", "packed")]
        assert np.array_equal(*pictures)


def test_the_sample_folder_of_kaggle_is_not_taken_for_training_images(tmp_path):
    write_eyepacs(tmp_path, "folder", share=SHARE)
    shutil.copytree(tmp_path / "train", tmp_path / "a_sample")
    survey = Survey()
    records = DATASETS["eyepacs"].records(tmp_path, survey=survey)
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
        labels(definition("eyepacs"), open_files(tmp_path))


def test_missing_test_labels_say_how_to_get_them(tmp_path):
    (tmp_path / "trainLabels.csv").write_text(GOOD)
    says = r"no retinopathy_solution.csv. Add --download: .* Or go on without its images: add --on-bad skip\."
    with pytest.raises(InputError, match=says):
        labels(definition("eyepacs"), open_files(tmp_path))


@pytest.mark.parametrize(
    ("absent", "splits"), [("retinopathy_solution.csv", {"train"}), ("trainLabels.csv", {"validation"})]
)
def test_one_part_of_eyepacs_is_read_where_what_is_missing_may_be_left_out(tmp_path, absent, splits):
    (tmp_path / "trainLabels.csv").write_text(GOOD)
    (tmp_path / "retinopathy_solution.csv").write_text("image,level,Usage\n9_left,1,Public\n")
    (tmp_path / absent).unlink()
    survey = Survey(skips=True)
    assert set(labels(definition("eyepacs"), open_files(tmp_path), survey).split.tolist()) == splits
    assert survey.notes == [f"no {absent}, so its images are left out"]
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"holds no trainLabels\.csv"):
        labels(definition("eyepacs"), open_files(tmp_path), survey)


def test_aptos_from_one_zip(tmp_path):
    survey = Survey()
    records = DATASETS["aptos"].records(write_aptos(tmp_path, "zip"), survey=survey)
    assert len(records) == 3_662
    assert sorted(survey.no_label) == ["test_images/x.png", "test_images/y.png"]
    assert survey.lines() == ["2 files without a label, left out (test_images/x.png, test_images/y.png)"]


def test_another_number_of_aptos_rows_cannot_give_the_published_split(tmp_path):
    (tmp_path / "train.csv").write_text("id_code,diagnosis\nab,1\ncd,4\n")
    with pytest.raises(InputError, match="has 2 rows, not 3,662: the published split goes by row number"):
        labels(definition("aptos"), open_files(tmp_path))
    assert set(labels(definition("aptos"), open_files(tmp_path), split="test").split) == {"test"}


MESSIDOR = """image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable
20051020_1_PP.png,0,0,1
20051020_2_PP.png,3,1,1
IM0001.jpg,2,0,1
IM0002.jpg,,,0
"""


def write_messidor(root, pairs=True):
    root.mkdir(exist_ok=True)
    (root / "messidor_data.csv").write_text(MESSIDOR)
    if pairs:
        lines = ["left;right", "20051020_1_PP.png;20051020_2_PP.png", "IM0001.JPG;IM0002.JPG"]
        (root / "messidor-2.csv").write_text("\r\n".join(lines))
    with zipfile.ZipFile(root / "IMAGES.zip", "w") as archive:
        for name in ("20051020_1_PP.png", "20051020_2_PP.png", "IM0001.JPG", "IM0002.JPG"):
            archive.writestr(f"IMAGES/{name}", drawn(name.lower(), 0))
    return root


def test_messidor_leaves_out_the_ungradable_and_pairs_the_eyes(tmp_path):
    survey = Survey()
    records = DATASETS["messidor"].records(write_messidor(tmp_path), survey=survey)
    assert records.grade.tolist() == [0, 3, 2]
    assert records.eye.tolist() == ["left", "right", "left"]
    assert records.patient_id[0] == records.patient_id[1] != records.patient_id[2]
    assert set(records.split) == {"test"}
    assert records.source[2] == "IMAGES/IM0001.JPG"  # the list says .jpg
    assert survey.lines() == ["1 labelled image left out: ungradable (IM0002.jpg)"]


def test_messidor_without_pairs_says_what_that_means(tmp_path):
    survey = Survey()
    records = DATASETS["messidor"].records(write_messidor(tmp_path, pairs=False), survey=survey)
    assert len(np.unique(records.patient_id)) == 3
    assert "the two eyes of a patient count as two patients" in survey.notes[0]
    text = (tmp_path / "messidor_data.csv").read_text()
    (tmp_path / "messidor_data.csv").write_text(text.replace("20051020_2_PP.png,3", "20051020_2_PP.png,"))
    with pytest.raises(InputError, match="row 2, column 'adjudicated_dr_grade': is ''"):
        DATASETS["messidor"].records(tmp_path)
