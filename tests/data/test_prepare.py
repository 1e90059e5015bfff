"""Preparing a folder: bad files are named, and whatever interrupts it, the same command ends with the same bytes."""

import csv
import filecmp
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.data.prepare import plan, prepare
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.forking import ended, fork, forked
from support.killing import killing

COUNT = 300  # three shards
RECIPE = Recipe(16, "none")


def colour(number):
    return (60 + number % 150, 200 - number % 150, 30 + number // 150)


def write_photograph(source, number, size=(30, 20)):
    Image.new("RGB", size, colour(number)).save(source / "images" / f"{number}.png")


def write_source(folder, images=COUNT):
    """Images in the compact layout of IDRiD, all good."""
    (folder / "images").mkdir(parents=True)
    rows = ["file,name,split,grade,sha256_original"]
    for number in range(images):
        write_photograph(folder, number)
        rows.append(f"{number}.png,image{number},{'train' if number < 200 else 'test'},{number % 5},{number:064d}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_source(tmp_path_factory.mktemp("good") / "source")


@pytest.fixture
def source(good, tmp_path):
    return shutil.copytree(good, tmp_path / "source")


def spoil(source):
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


def made(source, out, **changes):
    return prepare("idrid", out, **{"recipe": RECIPE, "source": source, "workers": 1} | changes)


def command(source, out, *more):
    return ["prepare", "idrid", "--source", str(source), "--out", str(out), "--size", "16", "--preprocess", "none",
            "--quiet", *more]  # fmt: skip


def test_all_files_are_looked_at_before_it_fails(source, tmp_path, capsys):
    bad = spoil(source)
    assert run(command(source, tmp_path / "out", "--workers", "1")) == 2
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
    made(source, tmp_path / "never bad")
    bad = spoil(source)
    with pytest.raises(InputError, match="5 of 300"):
        made(source, tmp_path / "out")
    for number in bad:
        write_photograph(source, number)
    data = made(source, tmp_path / "out")
    assert len(data.records) == COUNT
    assert {path.name: path.read_bytes() for path in (tmp_path / "never bad").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()
    }


def test_skipped_files_leave_no_record_and_rows_still_find_their_pictures(source, tmp_path, capsys):
    bad = spoil(source)
    with pytest.raises(InputError, match="5 of 300"):
        made(source, tmp_path / "out")
    data = made(source, tmp_path / "out", on_bad="skip")
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
        made(source, tmp_path / "out")
    assert run(command(source, tmp_path / "out", "--on-bad", "skip")) == 0
    assert "295 images at 16 px" in (said := capsys.readouterr().out)
    assert "5 bad files left out" in said


def test_nothing_but_bad_files_is_never_a_data_set(source, tmp_path):
    for path in (source / "images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match="300 of 300 files are bad") as caught:
        made(source, tmp_path / "out", on_bad="skip")
    assert "--on-bad" not in str(caught.value)
    with pytest.raises(InputError, match="no finished data set"):
        open_prepared(tmp_path / "out")


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
        made(archive, tmp_path / "out")
    write_photograph(source, 299)
    write_photograph(source, 10, (31, 20))  # in a shard that was done
    zipped(source, archive)
    data = made(archive, tmp_path / "out")
    assert len(data.records) == COUNT
    assert data.files["width"].to_pylist()[10] == 31


def test_changed_labels_are_refused_not_mixed(source, tmp_path):
    (source / "images" / "299.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"299\.png"):
        made(source, tmp_path / "out")
    labels = (source / "labels.csv").read_text()
    (source / "labels.csv").write_text(labels.replace("image9,train,4", "image9,train,0"))
    with pytest.raises(InputError, match="another label_table"):
        made(source, tmp_path / "out")


@pytest.fixture(scope="module")
def whole(good, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "whole"
    made(good, out)
    return out


TEMPORARY = (".part", ".claim")  # of killed writes; they are deleted when they are an hour old


def same(one, two):
    names = sorted(path.name for path in one.iterdir() if not path.name.endswith(TEMPORARY))
    assert names == sorted(path.name for path in two.iterdir() if not path.name.endswith(TEMPORARY))
    return all(filecmp.cmp(one / name, two / name, shallow=False) for name in names)


def test_killed_with_its_workers_it_ends_with_the_same_bytes(good, whole, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "retinabench", *command(good, out, "--workers", "2")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list(out.glob("*"))) < 4:  # what is there before the workers begin
        time.sleep(0.005)
    process.kill()
    process.communicate(timeout=60)  # its workers hold the pipe: they end too, or this would time out
    assert process.returncode == -signal.SIGKILL
    made(good, out)
    assert same(whole, out)


def test_two_commands_in_one_folder_at_once(good, whole, tmp_path):
    out = tmp_path / "out"
    assert [ended(process) for process in [fork(lambda: made(good, out)) for _ in range(2)]] == [0, 0]
    assert same(whole, out)


@pytest.mark.parametrize("write", [2, 4, 5])
def test_killed_at_a_write_it_continues_to_the_same_bytes(good, whole, tmp_path, write):
    out = tmp_path / "killed"

    def work():
        os.replace = killing("before", write)
        made(good, out)

    assert forked(work) == -signal.SIGKILL
    with pytest.raises(InputError, match="no finished data set"):
        open_prepared(out)
    made(good, out)
    assert same(whole, out)


def test_a_damaged_shard_is_named_and_one_of_a_begun_folder_is_made_again(good, whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "damaged")
    shard = out / "images-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-7] ^= 4
    shard.write_bytes(content)
    with pytest.raises(InputError, match=r"images-00000.npy: is damaged.*prepare it again"):
        open_prepared(out).images([0])
    for name in ("dataset.json", "files.parquet", "records.parquet"):
        (out / name).unlink()
    made(good, out)
    assert same(whole, out)


def test_a_second_command_does_nothing(good, whole):
    before = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    made(good, whole)
    assert before == {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}


def test_other_settings_never_mix(good, whole, tmp_path):
    with pytest.raises(InputError, match="another size"):
        made(good, whole, recipe=Recipe(32, "none"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        made(good, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_folder_of_another_version_says_so(good, whole, tmp_path):
    for name in ("dataset.json", "prepare.json"):
        old = shutil.copytree(whole, tmp_path / name)
        content = json.loads((old / name).read_text())
        del content["format"]
        (old / name).write_text(json.dumps(content))
        (old / "SHA256SUMS").unlink()
    with pytest.raises(InputError, match=r"another version.*format 1; this one reads format 2.*prepare it again"):
        open_prepared(tmp_path / "dataset.json")
    with pytest.raises(InputError, match=r"another version.*prepare it again"):
        made(good, tmp_path / "prepare.json")


def test_a_shard_takes_no_more_than_100_mib():
    records = DATASETS.find("synthetic").records(None, images=320)
    for size, images in ((64, 128), (512, 128), (1024, 33), (2048, 8)):
        shards = plan("synthetic", records, None, Recipe(size), Path())
        assert len(shards[0].sources) == images
        assert sum(len(shard.sources) for shard in shards) == len(records)


PEAK = """
import sys
from pathlib import Path
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.prepare import prepare
prepare("idrid", Path(sys.argv[2]), recipe=Recipe(96, "none"), source=Path(sys.argv[1]), workers=1)
# Not `ru_maxrss`, which a process inherits from the one that starts it.
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_images(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to see a process's peak memory")
    peaks = []
    for images in (500, 2000):
        folder = write_source(tmp_path / str(images), images)
        ran = subprocess.run([sys.executable, "-c", PEAK, str(folder), str(tmp_path / f"out{images}")],
                             check=True, capture_output=True, text=True)  # fmt: skip
        peaks.append(int(ran.stdout) / 1024)
    # All images together would take 41 MB more; labels, paths and hashes take a few.
    assert peaks[1] - peaks[0] < 20, peaks
