"""One run by several processes, which a place of the local engine starts: two gloo processes on the CPU."""

from __future__ import annotations

import json

import pytest

from retinabench.experiments.engines.jobs import Job
from retinabench.experiments.engines.local import LocalEngine
from support.helpers import make_prepared
from support.sweeps import small


def compute_by_two(tmp_path, *words):
    run = small(make_prepared(tmp_path / "data", size=8), *words)
    (outcome,) = LocalEngine(places=1, device="cpu", processes=2).compute([Job(run, tmp_path / "out")])
    return outcome


def test_two_processes_compute_a_run(tmp_path):
    outcome = compute_by_two(tmp_path)
    assert (outcome.state, outcome.attempts) == ("done", 1), outcome.message
    assert json.loads((outcome.folder / "run.json").read_text())["processes"] == 2
    assert (outcome.folder / "predictions.parquet").is_file()


@pytest.mark.slow
def test_what_ends_one_of_them_ends_the_run(tmp_path):
    outcome = compute_by_two(tmp_path, "optimizer.lr=1e30")
    assert (outcome.state, outcome.attempts) == ("diverged", 1)
    assert "not finite" in outcome.message
