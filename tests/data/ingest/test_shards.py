"""Files that cannot be read are named in a table; they never stop the others, nor the workers."""

import csv
import hashlib
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.core.progress import Quiet
from retinabench.data.ingest.prepare import prepare
from retinabench.data.prepared.folder import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe

COUNT = 300  # three shards


def colour(number):
    return (60 + number % 150, 200 - number % 150, 30)


def write_photograph(source, number, size=(30, 20)):
    Image.new("RGB", size, colour(number)).save(source / "images" / f"{number}.png")


@pytest.fixture
def source(tmp_path):
    """300 images in the compact layout of IDRiD, all good."""
    folder = tmp_path / "source"
    (folder / "images").mkdir(parents=True)
    rows = ["file,name,split,grade,sha256_original"]
    for number in range(COUNT):
        write_photograph(folder, number)
        rows.append(
            f"{number}.png,image{number},{'train' if number < 200 else 'test'},{number % 5},{number:064d}"
        )
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


def spoil(source):
    """Make five files bad, in different ways; return which."""
    images = source / "images"
    (images / "3.png").write_bytes(b"")
    (images / "5.png").write_text("no image")
    whole = (images / "130.png").read_bytes()
    (images / "130.png").write_bytes(whole[:50])
    (images / "299.png").write_bytes(b"\xff\xd8\xff\xe0 broken")
    Image.new("RGB", (40, 40)).save(images / "131.png", "JPEG")
    torn = (images / "131.png").read_bytes()
    (images / "131.png").write_bytes(torn[:-200])
    return [3, 5, 130, 131, 299]


def arguments(source, out, **changes):
    return (
        {"recipe": Recipe(16, "none"), "source": source, "workers": 1}
        | changes
        | {"out": out, "name": "idrid"}
    )


def test_all_files_are_looked_at_before_it_fails(source, tmp_path, capsys):
    bad = spoil(source)
    code = run(["prepare", "idrid", "--source", str(source), "--out", str(tmp_path / "out"), "--size", "16",
                "--preprocess", "none", "--workers", "2", "--quiet"])  # fmt: skip
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "3.png" in line
    assert "is empty (0 bytes); 5 of 300 files are bad" in line
    assert "bad.csv" in line
    assert "--on-bad skip" in line
    with open(tmp_path / "out" / "bad.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["image_id"] for row in rows] == [f"image{number}" for number in bad]
    assert [row["source"] for row in rows] == [f"images/{number}.png" for number in bad]
    assert all(row["reason"] for row in rows)


def test_repaired_files_are_tried_again_and_nothing_tells_that_they_were_bad(source, tmp_path):
    prepare(**arguments(source, tmp_path / "never bad"))
    bad = spoil(source)
    with pytest.raises(InputError, match="5 of 300"):
        prepare(**arguments(source, tmp_path / "out"))
    for number in bad:
        write_photograph(source, number)
    data = prepare(**arguments(source, tmp_path / "out"))
    assert len(data.records) == COUNT
    assert {path.name: path.read_bytes() for path in (tmp_path / "never bad").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()
    }


def test_skipped_files_leave_no_record_and_rows_still_find_their_pictures(source, tmp_path, capsys):
    bad = spoil(source)
    with pytest.raises(InputError, match="5 of 300"):
        prepare(**arguments(source, tmp_path / "out"))
    data = prepare(**arguments(source, tmp_path / "out", on_bad="skip"))
    good = [number for number in range(COUNT) if number not in bad]
    assert list(data.records.image_id) == [f"image{number}" for number in good]
    assert [len(shard) for shard in data.shards] == [126, 126, 43]
    rows = np.random.default_rng(0).permutation(len(good))
    pictures = data.images(rows)
    for row, picture in zip(rows, pictures, strict=True):
        assert tuple(picture[8, 8]) == colour(good[row])
    assert tuple(data.image("image298")[8, 8]) == colour(298)
    assert data.image("image299") is None

    files = data.files.to_pylist()
    assert [row["image_id"] for row in files] == [f"image{number}" for number in range(COUNT)]
    assert [k for k, row in enumerate(files) if row["status"] == "bad"] == bad
    for row in files:
        content = (source / row["source"]).read_bytes()
        assert (row["sha256"], row["bytes"]) == (hashlib.sha256(content).hexdigest(), len(content))
        if row["status"] == "ok":
            assert (row["width"], row["height"], row["reason"]) == (30, 20, "")
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["bad"] == 5
    assert not list((tmp_path / "out").glob("files-*"))

    with pytest.raises(InputError, match="without 5 files"):  # finished, but not what is asked for now
        prepare(**arguments(source, tmp_path / "out"))
    command = ["prepare", "idrid", "--source", str(source), "--out", str(tmp_path / "out"), "--size", "16",
               "--preprocess", "none", "--on-bad", "skip", "--quiet"]  # fmt: skip
    assert run(command) == 0
    assert "295 images at 16 px" in (said := capsys.readouterr().out)
    assert "5 bad files left out" in said


def test_a_whole_shard_of_bad_files(source, tmp_path):
    for number in range(128):
        (source / "images" / f"{number}.png").write_bytes(b"")
    data = prepare(**arguments(source, tmp_path / "out", on_bad="skip"))
    assert [len(shard) for shard in data.shards] == [0, 128, 44]
    assert tuple(data.images([0])[0, 8, 8]) == colour(128)
    assert tuple(data.images([171, 128])[0, 8, 8]) == colour(299)


def test_nothing_but_bad_files_is_never_a_data_set(source, tmp_path):
    for path in (source / "images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match="300 of 300 files are bad") as caught:
        prepare(**arguments(source, tmp_path / "out", on_bad="skip"))
    assert "--on-bad" not in str(caught.value)
    with pytest.raises(InputError, match="no finished data set"):
        open_prepared(tmp_path / "out")


def test_missing_files_and_folders_in_their_place_are_bad_files_too(source, tmp_path, monkeypatch):
    from retinabench.data.datasets import idrid
    from retinabench.data.image_dataset import ImageDataset
    from retinabench.data.registry import DATASETS

    records = idrid.records(source)  # the loader itself would name the missing one
    monkeypatch.setitem(DATASETS._loaded, "idrid", ImageDataset(lambda *_, **__: records, "by hand"))
    (source / "images" / "7.png").unlink()
    (source / "images" / "8.png").unlink()
    (source / "images" / "8.png").mkdir()
    with pytest.raises(InputError, match="2 of 300"):
        prepare(**arguments(source, tmp_path / "out"))
    with open(tmp_path / "out" / "bad.csv", newline="") as handle:
        reasons = {row["image_id"]: row["reason"] for row in csv.DictReader(handle)}
    assert set(reasons) == {"image7", "image8"}
    assert "does not exist" in reasons["image7"]
    assert "directory" in reasons["image8"]


def test_a_file_that_changed_since_the_interruption_is_read_again(source, tmp_path):
    (source / "images" / "299.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"299\.png"):
        prepare(**arguments(source, tmp_path / "out"))
    write_photograph(source, 299)
    write_photograph(source, 10, (31, 20))  # in a shard that was done
    said = []

    class Listening(Quiet):
        def say(self, line):
            said.append(line)

    data = prepare(**arguments(source, tmp_path / "out", progress=Listening()))
    assert data.files["width"].to_pylist()[10] == 31
    assert any("2 parts are made again" in line for line in said)


def zipped(source, file):
    with zipfile.ZipFile(file, "w") as archive:
        for path in (source / "labels.csv", *sorted((source / "images").iterdir())):
            archive.write(path, path.relative_to(source))
    return file


def test_an_archive_that_changed_since_the_interruption_is_read_again(source, tmp_path):
    """Its members have no time of change that could be trusted: all its images are made again."""
    (source / "images" / "299.png").write_bytes(b"")
    archive = zipped(source, tmp_path / "idrid.zip")
    with pytest.raises(InputError, match=r"299\.png"):
        prepare(**arguments(archive, tmp_path / "out"))
    write_photograph(source, 299)
    write_photograph(source, 10, (31, 20))  # in a shard that was done
    zipped(source, archive)
    data = prepare(**arguments(archive, tmp_path / "out"))
    assert len(data.records) == COUNT
    assert data.files["width"].to_pylist()[10] == 31


def test_changed_labels_are_refused_not_mixed(source, tmp_path):
    (source / "images" / "299.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"299\.png"):
        prepare(**arguments(source, tmp_path / "out"))
    labels = (source / "labels.csv").read_text()
    (source / "labels.csv").write_text(labels.replace("image9,train,4", "image9,train,0"))
    with pytest.raises(InputError, match="another label_table"):
        prepare(**arguments(source, tmp_path / "out"))
