"""What an engine promises, of those that compute here."""

from pathlib import Path

import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.engines.jobs import Job, JobEngine, Outcome
from retinabench.experiments.engines.local import LocalEngine


def test_an_outcome_names_its_job_and_says_nothing_where_all_went_well():
    job = Job(load_run(None, ["method=map"], data="d"), Path("runs"))
    done = Outcome(job, "done", Path("runs/map"), 3.0, 1)
    assert (done.message, done.log) == ("", None)
    assert job == Job(job.run, Path("runs"))
    with pytest.raises(AttributeError):
        done.state = "failed"


def test_an_engine_yields_nothing_for_nothing():
    engine: JobEngine = LocalEngine(1, device="cpu")
    assert list(engine.compute([])) == []
