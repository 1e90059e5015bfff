import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinabench.core.errors import InputError
from retinabench.core.files import write_bytes
from retinabench.data.ingest.prepare import prepare
from retinabench.data.ingest.shards import plan
from retinabench.data.prepared.folder import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.helpers import hear_interrupts
from support.killing import KILLING

SETTINGS = {"recipe": Recipe(24), "images": 160, "workers": 1}

DRIVER = f"""
{KILLING}
import os, sys
from pathlib import Path
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.ingest.prepare import prepare

os.replace = killing("before", int(sys.argv[2]))
prepare("synthetic", Path(sys.argv[1]), recipe=Recipe(24), images=160, workers=1)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "whole"
    prepare("synthetic", out, **SETTINGS)
    return out


TEMPORARY = (".part", ".claim")  # of killed writes; they are deleted when they are an hour old


def same(one, two):
    names = sorted(path.name for path in one.iterdir() if not path.name.endswith(TEMPORARY))
    assert names == sorted(path.name for path in two.iterdir() if not path.name.endswith(TEMPORARY))
    return all(filecmp.cmp(one / name, two / name, shallow=False) for name in names)


def test_two_processes_make_the_same_bytes_as_one(whole, tmp_path):
    prepare("synthetic", tmp_path / "two", **{**SETTINGS, "workers": 2})
    assert same(whole, tmp_path / "two")


@pytest.mark.parametrize("write", [2, 4, 5])
def test_killed_at_a_write_it_continues_to_the_same_bytes(whole, tmp_path, write):
    out = tmp_path / "killed"
    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, str(out), str(write)], check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(InputError, match="no finished data set"):
        open_prepared(out)
    prepare("synthetic", out, **SETTINGS)
    assert same(whole, out)


def test_tables_of_shards_that_a_kill_left_are_deleted(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "left")
    write_bytes(out / "files-00000.parquet", b"left", checked=True)
    prepare("synthetic", out, **SETTINGS)
    assert same(whole, out)


def test_a_damaged_shard_is_named_and_one_of_a_begun_folder_is_made_again(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "damaged")
    shard = out / "images-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-7] ^= 4
    shard.write_bytes(content)
    with pytest.raises(InputError, match=r"images-00000.npy: is damaged.*prepare it again"):
        open_prepared(out).images([0])
    for name in ("dataset.json", "files.parquet", "records.parquet"):
        (out / name).unlink()
    prepare("synthetic", out, **SETTINGS)
    assert same(whole, out)


def test_a_second_command_does_nothing(whole):
    before = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    prepare("synthetic", whole, **SETTINGS)
    assert before == {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}


def test_other_settings_never_mix(whole, tmp_path):
    with pytest.raises(InputError, match="another size"):
        prepare("synthetic", whole, **{**SETTINGS, "recipe": Recipe(32)})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        prepare("synthetic", tmp_path / "mine", **SETTINGS)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_folder_of_another_version_says_so(whole, tmp_path):
    for name in ("dataset.json", "prepare.json"):
        old = shutil.copytree(whole, tmp_path / name)
        content = json.loads((old / name).read_text())
        del content["format"]
        (old / name).write_text(json.dumps(content))
        (old / "SHA256SUMS").unlink()
    with pytest.raises(
        InputError, match=r"another version.*format 1; this one reads format 2.*prepare it again"
    ):
        open_prepared(tmp_path / "dataset.json")
    with pytest.raises(InputError, match=r"another version.*prepare it again"):
        prepare("synthetic", tmp_path / "prepare.json", **SETTINGS)


@pytest.mark.parametrize("recipe", [Recipe(24, "none"), Recipe(24, "graham"), Recipe(24, "graham", 10)])
def test_another_recipe_is_another_folder(whole, recipe):
    with pytest.raises(InputError, match=r"with another (preprocess|blur)"):
        prepare("synthetic", whole, **{**SETTINGS, "recipe": recipe})


def test_the_manifest_says_what_was_prepared_from_what(whole):
    about = json.loads((whole / "dataset.json").read_text())
    assert about["settings"]["preprocess"] == "crop"
    assert about["images"] == 320
    assert about["bad"] == 0
    assert len(about["source_sha256"]) == 64
    assert about["version"]
    files = open_prepared(whole).files
    assert files["image_id"].to_pylist() == list(open_prepared(whole).records.image_id)
    assert set(files["status"].to_pylist()) == {"ok"}
    assert set(files["sha256"].to_pylist()) == {""}  # drawn: there are no files


def test_a_shard_takes_no_more_than_100_mib():
    records = DATASETS.find("synthetic").records(None, images=320)
    for size, images in ((64, 128), (512, 128), (1024, 33), (2048, 8)):
        shards = plan("synthetic", records, None, Recipe(size), Path())
        assert len(shards[0].sources) == images
        assert sum(len(shard.sources) for shard in shards) == len(records)


def test_a_damaged_folder_is_refused(whole, tmp_path):
    prepare("synthetic", tmp_path / "x", **SETTINGS)
    shard = next((tmp_path / "x").glob("images-*.npy"))
    shard.write_bytes(shard.read_bytes()[:1000])
    with pytest.raises(InputError, match="damaged"):
        open_prepared(tmp_path / "x")


def test_patients_never_stand_on_both_sides(whole):
    records = open_prepared(whole).records
    sides = {
        split: set(records.patient_id[records.split == split]) for split in ("train", "validation", "test")
    }
    assert not sides["train"] & sides["validation"]
    assert not sides["train"] & sides["test"]
    assert not sides["validation"] & sides["test"]


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RuntimeError, match="no space left on the disk"):
        prepare("synthetic", tmp_path / "full", **SETTINGS)
    assert list((tmp_path / "full").iterdir()) == []


def test_ctrl_c_is_one_line_also_with_workers_and_the_command_continues(whole, tmp_path):
    """The terminal interrupts the whole group of processes at once."""
    command = [sys.executable, "-m", "retinabench", "prepare", "synthetic", "--size", "24", "--images", "160",
               "--workers", "2", "--out", str(tmp_path / "out"), "--quiet"]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=hear_interrupts
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob("images-*.npy")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode:  # it may have finished in the same moment
        assert process.returncode == 130
        assert len(errors.splitlines()) == 1, errors
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert same_pictures(whole, tmp_path / "out")


def same_pictures(one, two):
    names = [path.name for path in one.glob("images-*.npy")]
    return all(filecmp.cmp(one / name, two / name, shallow=False) for name in names)
