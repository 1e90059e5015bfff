"""Killed at any moment, two at once, a full disk: the same command ends with the same bytes, in flat memory."""

import filecmp
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe


def command(source, out, *more, workers=2):
    return [sys.executable, "-m", "retinabench", "prepare", "idrid", "--source", str(source), "--out", str(out),
            "--size", "96", "--preprocess", "none", "--on-bad", "skip", "--workers", str(workers),
            "--quiet", *more]  # fmt: skip


def make_source(folder, images):
    (folder / "images").mkdir(parents=True)
    rows = ["file,name,split,grade,sha256_original"]
    pixels = np.random.default_rng(1).integers(0, 256, (8, 10, 3), dtype=np.uint8)
    for number in range(images):
        picture = Image.fromarray(np.roll(pixels, number, axis=(0, 1)[number % 2])).resize((60, 48))
        picture.save(folder / "images" / f"{number}.png")
        rows.append(f"{number}.png,image{number},{'train' if number % 3 else 'test'},{number % 5},{number:064d}")
    (folder / "images" / "77.png").write_bytes(b"torn")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_source(tmp_path_factory.mktemp("interrupted") / "source", 500)


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("interrupted") / "whole"
    prepare("idrid", out, recipe=Recipe(96, "none"), source=source, workers=1, on_bad="skip")
    return out


def same(one, two):
    """Every file alike; unfinished writes of killed processes are swept when they are an hour old."""
    names = [sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) for folder in (one, two)]
    assert names[0] == names[1]
    assert not [name for name in names[0] if not filecmp.cmp(one / name, two / name, shallow=False)]


def test_killed_with_its_workers_it_ends_with_the_same_bytes(source, whole, tmp_path):
    """`test_prepare.py` kills one process at every kind of write; here the workers go on for a moment."""
    out = tmp_path / "out"
    kills = 0
    for files in (2, 4):  # of the nine that there are before the last step
        process = subprocess.Popen(command(source, out), stderr=subprocess.PIPE)
        while process.poll() is None and len(list(out.glob("*"))) < files:
            time.sleep(0.005)
        process.kill()
        process.communicate(timeout=60)  # its workers hold the pipe: they end too, or this would time out
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 1  # on a slow day the second may find all done
    finished = subprocess.run(command(source, out), check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    same(whole, out)


def test_two_commands_in_one_folder_at_once(source, whole, tmp_path):
    out = tmp_path / "out"
    pair = [
        subprocess.Popen(command(source, out, workers=workers), stderr=subprocess.PIPE, text=True) for workers in (1, 2)
    ]
    for process in pair:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    same(whole, out)


PEAK = """
import sys
from pathlib import Path
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.prepare import prepare
prepare("idrid", Path(sys.argv[2]), recipe=Recipe(96, "none"), source=Path(sys.argv[1]), workers=1, on_bad="skip")
# Not `ru_maxrss`, which a process inherits from the one that starts it.
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_images(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to see a process's peak memory")
    peaks = []
    for images in (500, 2000):
        folder = make_source(tmp_path / str(images), images)
        ran = subprocess.run([sys.executable, "-c", PEAK, str(folder), str(tmp_path / f"out{images}")],
                             check=True, capture_output=True, text=True)  # fmt: skip
        peaks.append(int(ran.stdout) / 1024)
    # All images together would take 41 MB more; labels, paths and hashes take a few.
    assert peaks[1] - peaks[0] < 20, peaks
