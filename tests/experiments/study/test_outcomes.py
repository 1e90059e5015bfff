"""The last outcome of every run, and jobs that several methods have in common."""

import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.engines.jobs import Job, Outcome
from retinabench.experiments.study.outcomes import RecordingEngine, read_record, read_records


class Counting:
    """Computes nothing, and remembers what it was given."""

    def __init__(self, state="done"):
        self.given, self.state = [], state

    def compute(self, jobs):
        for job in jobs:
            self.given.append(job)
            yield Outcome(job, self.state, job.out / "x", 5.0, 1, "" if self.state == "done" else "it broke")


@pytest.fixture
def jobs(tmp_path):
    return [Job(load_run(None, ["method=map"], data="d", seed=seed), tmp_path / "runs") for seed in (0, 1)]


def recording(tmp_path, inner):
    return RecordingEngine(inner, tmp_path, lambda run: "fingerprint")


def test_a_job_is_computed_once_and_yielded_as_often_as_it_is_asked_for(tmp_path, jobs):
    inner = Counting()
    engine = recording(tmp_path, inner)
    found = list(engine.compute([jobs[0], jobs[1], jobs[0]]))
    assert [outcome.job.run.seed for outcome in found] == [0, 1, 0]
    assert list(engine.compute(jobs[:1])) == found[:1]
    assert inner.given == jobs
    assert engine.key(jobs[0]) != engine.key(Job(jobs[0].run, tmp_path / "other"))


def test_records_hold_the_last_outcome_but_the_seconds_of_the_work(tmp_path, jobs):
    key = recording(tmp_path, None).key(jobs[0])[1]
    assert read_record(tmp_path, key) is None
    list(recording(tmp_path, Counting("diverged")).compute(jobs[:1]))
    assert (read_record(tmp_path, key).state, read_record(tmp_path, key).message) == ("diverged", "it broke")
    list(recording(tmp_path, Counting()).compute(jobs[:1]))
    record = read_record(tmp_path, key)
    assert (record.state, record.seconds, record.log) == ("done", 5.0, None)
    list(recording(tmp_path, Counting()).compute(jobs[:1]))  # found done: the record stays
    assert read_record(tmp_path, key) == record
    assert read_records(tmp_path) == [record]


def test_a_run_that_was_done_when_its_command_was_killed_is_recorded_by_the_next_one(tmp_path, jobs):
    folder = tmp_path / "runs" / "x"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"seconds": 1.5}\n{"seconds": 2.0}\n')
    list(recording(tmp_path, Counting("failed")).compute(jobs[:1]))
    engine = recording(tmp_path, Counting())
    for job in jobs:  # of one there is an old record, of the other none
        engine.found(job, folder)
        record = read_record(tmp_path, engine.key(job)[1])
        assert (record.state, record.seconds, record.attempts) == ("done", 3.5, 1)
    assert next(iter(engine.compute(jobs[:1]))).state == "done"
    assert not engine.engine.given
