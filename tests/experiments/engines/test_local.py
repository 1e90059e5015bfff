"""The local pool: what strikes one process costs one attempt, and the bits are those of a loop over the runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from retinabench.experiments.engines.jobs import Job
from retinabench.experiments.engines.local import LocalEngine
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from support.helpers import make_prepared
from support.sweeps import SLOW, bits, meanwhile, met, small, sweep

DRIVER = """
import sys
from pathlib import Path
from retinabench.experiments.engines.jobs import Job
from retinabench.experiments.engines.local import LocalEngine
from support.sweeps import small

if __name__ == "__main__":
    run = small(Path(sys.argv[1]), "optimizer.epochs=100000")
    list(LocalEngine(places=1, threads=2, device="cpu").compute([Job(run, Path(sys.argv[2]))]))
"""


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_fault_costs_what_it_strikes(tmp_path, one_thread):
    """Kill -9, a crash, too little memory and a divergence in one sweep; the rest has the bits of a serial loop."""
    prepared, out = make_prepared(tmp_path / "data", size=8), tmp_path / "pool"
    runs = sweep(prepared, seeds=3)
    runs.append(crashing := small(prepared, "seed=8", f"optimizer.epochs={SLOW}"))
    diverging = small(prepared, "seed=7", "optimizer.lr=1e30")
    huge = small(prepared, "seed=6", "model.width=1000000000000")  # 768 TB, more than an address can say
    jobs = [Job(run, out) for run in (*runs, diverging, huge)]
    engine = LocalEngine(places=2, device="cpu")
    with meanwhile(
        lambda: os.kill(met(out, "map-mlp-seed-9"), signal.SIGKILL),
        lambda: os.kill(met(out, "map-mlp-seed-8"), signal.SIGSEGV),
    ):
        outcomes = list(engine.compute(jobs))

    assert len(outcomes) == len(jobs)
    of = {jobs.index(outcome.job): outcome for outcome in outcomes}
    assert sorted(of) == list(range(len(jobs)))
    attempts = [of[k].attempts for k in range(len(jobs))]
    assert attempts == [1, 2, 1, 1, 1, 1, 2, 1, 2]
    assert [of[k].state for k in range(len(runs))] == ["done"] * len(runs)
    *_, diverged, starved = (of[k] for k in range(len(jobs)))
    assert (diverged.state, starved.state) == ("diverged", "out_of_memory")
    assert "not finite" in diverged.message
    assert "cpu ran out of memory" in starved.message
    assert starved.log.read_text().count("Traceback") == 2
    assert "Segmentation fault" in of[runs.index(crashing)].log.read_text()
    described = json.loads((of[0].folder / "run.json").read_text())
    assert described["threads"] == 1

    for run in runs:
        execute(run, tmp_path / "serial", Resources("cpu"))
    assert bits(out) == bits(tmp_path / "serial")

    # The same command again finds all that is final, and tries again only what lacked memory.
    again = {jobs.index(outcome.job): outcome for outcome in engine.compute(jobs[:-1])}
    assert [again[k].attempts for k in range(len(jobs) - 1)] == [0] * (len(jobs) - 1)
    assert again[len(runs)].state == "diverged"


def test_a_killed_command_leaves_no_process_behind(tmp_path):
    prepared, out = make_prepared(tmp_path / "data", size=8), tmp_path / "out"
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    command = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(prepared), str(out)], env={**os.environ, "PYTHONPATH": paths}
    )
    try:
        child = met(out, "map-mlp")
    finally:
        command.kill()
        command.wait()
    (described,) = out.glob("*/run.json")
    # What the caller's environment says of threads is not what a run takes.
    assert json.loads(described.read_text())["threads"] == 2
    end = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{child}").exists()
