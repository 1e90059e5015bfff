"""The short form of `make torture`: the first trials of some batches; the whole takes an hour."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
EXAMINE, TRAIN, CHAINS = 11, 0, 12  # seeds of a quick verb, of a training, and of a damaged set of chains


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
@pytest.mark.parametrize(
    ("campaign", "seed", "trials"),
    [
        ("kills", EXAMINE, 6),
        pytest.param("disks", TRAIN, 24, marks=pytest.mark.slow),
        pytest.param("kills", TRAIN, 24, marks=pytest.mark.slow),
        pytest.param("bit_rot", TRAIN, 12, marks=pytest.mark.slow),
        pytest.param("bit_rot", CHAINS, 12, marks=pytest.mark.slow),
    ],
)
def test_nothing_breaks(campaign, seed, trials):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOLS), os.environ.get("PYTHONPATH", "")])}
    order = ["--only", campaign, "--seed", str(seed), "--trials", str(trials)]
    found = subprocess.run(
        [sys.executable, "-m", "torture", *order], env=env, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"| {trials} trials |" in found.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
def test_a_pass_over_every_operation_is_complete_and_continues(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOLS), os.environ.get("PYTHONPATH", "")])}
    log = tmp_path / "outcomes.jsonl"
    order = [sys.executable, "-m", "torture", "--log", str(log), "--every-operation", "score"]
    found = subprocess.run(order, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    whole = log.read_text().splitlines(keepends=True)
    count = int(json.loads(whole[0])["case"].split()[-1])
    assert [json.loads(line)["case"] for line in whole] == [
        f"score: operation {at} of {count}" for at in range(1, count + 1)
    ]
    log.write_text("".join(whole[:-1]))
    subprocess.run(order, env=env, capture_output=True, check=True)
    assert sorted(log.read_text().splitlines(keepends=True)) == sorted(whole)
