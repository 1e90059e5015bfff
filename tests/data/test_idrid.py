import shutil

import numpy as np
import pytest
from PIL import Image

from retinabench.data import idrid
from retinabench.data.divisions import in_domain
from retinabench.errors import InputError

TRAIN, TEST = (134, 20, 136, 74, 49), (34, 5, 32, 19, 13)


def test_the_official_split(shared):
    records = idrid.records(shared("data", "idrid"))
    for split, grades in (("train", TRAIN), ("test", TEST)):
        assert tuple(np.bincount(records.grade[records.split == split])) == grades
    # Six pairs of photographs are equal byte by byte: each pair is one patient.
    assert len(np.unique(records.patient_id)) == 516 - 6


def test_the_task_holds_out_a_fifth_of_the_training_patients(shared):
    records = idrid.records(shared("data", "idrid"))
    splits = in_domain(records)
    assert len(splits["train"]) + len(splits["validation"]) == 413
    assert len(splits["test"]) == 103
    assert not set(records.patient_id[splits["train"]]) & set(records.patient_id[splits["validation"]])


@pytest.fixture
def official(tmp_path):
    """The archive as downloaded, with drawn photographs."""
    labels = tmp_path / "B. Disease Grading" / "2. Groundtruths"
    labels.mkdir(parents=True)
    for split, (folder, name) in idrid.OFFICIAL.items():
        pictures = labels.parent / "1. Original Images" / folder
        pictures.mkdir(parents=True)
        lines = ["Image name,Retinopathy grade,Risk of macular edema ,,"]
        for number in range(1, 4):
            colour = (60 * number, 90, 40 if split == "train" else 80)
            Image.new("RGB", (40, 30), colour).save(pictures / f"IDRiD_{number:03d}.jpg")
            lines.append(f"IDRiD_{number:03d},{number},0,,")
        (labels / name).write_text("\n".join([*lines, ",,,,", ""]))
    return tmp_path


def test_the_official_archive_is_read_as_downloaded(official):
    records = idrid.records(official)
    assert sorted(records.image_id) == [f"IDRiD_00{n}_{s}" for n in (1, 2, 3) for s in ("test", "train")]
    assert (official / str(records.source[0])).is_file()
    assert list(records.grade[records.split == "train"]) == [1, 2, 3]


def test_mistakes_are_named(official, tmp_path):
    file = next(official.rglob("*Training Labels.csv"))
    good = file.read_text()
    file.write_text(good.replace("IDRiD_002,2", "IDRiD_002,7"))
    with pytest.raises(InputError, match=r"row 2, column 'Retinopathy grade': is '7'"):
        idrid.records(official)
    file.write_text(good)
    next(official.rglob("a. Training Set/IDRiD_003.jpg")).unlink()
    with pytest.raises(InputError, match=r"1 labelled image has no file: IDRiD_003_train"):
        idrid.records(official)
    shutil.rmtree(official / "B. Disease Grading" / "2. Groundtruths")
    with pytest.raises(InputError, match="Groundtruths"):
        idrid.records(official)
    with pytest.raises(InputError, match="does not exist"):
        idrid.records(tmp_path / "nowhere")
