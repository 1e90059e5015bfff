"""The limits of a trial, and the short form of `make torture`: first trials of some batches."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torture.trial import command, isolated

EXAMINE, TRAIN, CHAINS = 11, 0, 12  # seeds of a quick verb, of a training, and of a damaged set of chains
lacking = sys.platform != "linux" or shutil.which("cc") is None
needs_compiler = pytest.mark.skipif(lacking, reason="needs Linux and a C compiler")


def torture(*words):
    paths = os.pathsep.join([str(Path(__file__).parents[2] / "tools"), os.environ.get("PYTHONPATH", "")])
    command, env = [sys.executable, "-m", "torture", *map(str, words)], {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_trial_returns_raises_hangs_dies_or_needs_too_much() -> None:
    assert isolated(lambda: 3).value == 3
    raised = isolated(int, "x")
    assert raised.code == 1
    assert raised.error.startswith("ValueError")
    assert isolated(time.sleep, 5, seconds=0.1).broken == "longer than 0.1 s"
    assert isolated(bytearray, 2**30, megabytes=100).broken == "more than 100 MB"
    assert isolated(os._exit, 3).broken == "died with code 3"


def test_a_command_that_prints_a_traceback_or_hangs_is_broken() -> None:
    python = [sys.executable, "-c"]
    assert command("raise OSError", program=python).broken == "traceback"
    assert command("import time; time.sleep(9)", program=python, seconds=0.2).broken == "longer than 0.2 s"
    code = "import sys; sys.exit(print('retinabench: error: a.csv: is empty.', file=sys.stderr) or 2)"
    said = command(code, program=python)
    assert said.refused


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    words = ["--only", "atomic_writes", "--jobs", "1", "--minutes", "0.04", "--log", log]
    assert "atomic_writes" in torture(*words)
    before = log.read_bytes()
    torture(*words)
    assert log.read_bytes().startswith(before)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("campaign", "seed", "trials"),
    [
        ("kills", EXAMINE, 12), ("disks", TRAIN, 24), ("kills", TRAIN, 24), ("bit_rot", TRAIN, 12), ("bit_rot", CHAINS, 12),
    ],
)  # fmt: skip
def test_nothing_breaks(campaign, seed, trials):
    assert f"| {trials} trials |" in torture("--only", campaign, "--seed", seed, "--trials", trials)


@pytest.mark.slow
@needs_compiler
def test_a_pass_over_every_operation_is_complete_and_continues(tmp_path):
    log = tmp_path / "outcomes.jsonl"
    words = ["--log", log, "--every-operation", "score"]
    torture(*words)
    whole = log.read_text().splitlines(keepends=True)
    count = int(json.loads(whole[0])["case"].split()[-1])
    cases = [f"score: operation {at} of {count}" for at in range(1, count + 1)]
    assert [json.loads(line)["case"] for line in whole] == cases
    log.write_text("".join(whole[:-1]))
    torture(*words)
    assert sorted(log.read_text().splitlines(keepends=True)) == sorted(whole)
