import shutil
import zipfile

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets import idrid
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe

TRAIN, TEST = (134, 20, 136, 74, 49), (34, 5, 32, 19, 13)


def test_the_official_split(shared):
    records = idrid.records(shared("data", "idrid"))
    for split, grades in (("train", TRAIN), ("test", TEST)):
        assert tuple(np.bincount(records.grade[records.split == split])) == grades
    # Six pairs of images are equal byte by byte: each pair is one patient.
    assert len(np.unique(records.patient_id)) == 516 - 6


@pytest.fixture
def official(write_grading):
    return write_grading((1, 1, 60), (2, 2, 120), (3, 3, 180))


def test_the_official_archive_is_read_as_downloaded(official):
    records = idrid.records(official)
    assert sorted(records.image_id) == [f"IDRiD_00{n}_{s}" for n in (1, 2, 3) for s in ("test", "train")]
    assert (official / str(records.source[0])).is_file()
    assert list(records.grade[records.split == "train"]) == [1, 2, 3]


def zipped(folder, file):
    content = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file


def test_a_damaged_photograph_is_a_bad_file_and_can_be_replaced(official, tmp_path):
    """Also inside the archive, and although the loader itself reads all bytes to tell equal images."""
    source = zipped(official, tmp_path / "grading.zip")
    whole = source.read_bytes()
    with zipfile.ZipFile(source) as archive:
        member = next(one for one in archive.infolist() if "Training Set/IDRiD_002" in one.filename)
    torn = bytearray(whole)
    torn[member.header_offset + 30 + len(member.filename) + 30] ^= 255
    source.write_bytes(torn)
    arguments = {"recipe": Recipe(16), "source": source, "workers": 1}
    with pytest.raises(InputError, match=r"is damaged in its archive \(Bad CRC-32\); the other 5 are good"):
        prepare("idrid", tmp_path / "out", **arguments)
    (row,) = (tmp_path / "out" / "bad.csv").read_text().splitlines()[1:]
    assert row.startswith("IDRiD_002_train,")
    assert len(prepare("idrid", tmp_path / "rest", on_bad="skip", **arguments).records) == 5
    source.write_bytes(whole)
    assert len(prepare("idrid", tmp_path / "out", **arguments).records) == 6


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
