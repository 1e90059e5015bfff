"""The bookkeeping of both engines, with workers that only pretend: nothing lost, nothing twice, never a crowd."""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np
import pytest

from retinabench.core.atomic_files import write_bytes
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.experiments.engines.jobs import Job
from retinabench.experiments.engines.scheduler import LOSSES, JobResult, compute
from support.helpers import make_prepared
from support.sweeps import small, sweep


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("prepared") / "data", size=8)


class Pretenders:
    """`places` workers whose jobs end as `fate(job, number)` says; they record what the tests check."""

    def __init__(self, places, fate=lambda job, number: JobResult("done"), random=None):
        self.places, self.fate, self.random = places, fate, random
        self.given, self.started, self.most, self.opened = [], [], 0, 0

    def __call__(self):
        self.opened += 1
        return contextlib.nullcontext(self)

    def room(self):
        return self.places - len(self.given)

    def start(self, job, number):
        assert all((need / "done").is_file() for need in job.needs), "a composition before its members"
        self.given.append((job, number))
        self.started.append(job.folder.name)
        self.most = max(self.most, len(self.given))

    def ended(self):
        place = 0 if self.random is None else self.random.integers(len(self.given))
        job, number = self.given.pop(place)
        attempt = self.fate(job, number)
        if attempt.state == "done":
            write_bytes(job.folder / "done", b"")
        return [(job, attempt)]


def test_members_come_first_and_are_shared(prepared, tmp_path):
    workers = Pretenders(2)
    jobs = [Job(run, tmp_path) for run in sweep(prepared, seeds=3)]
    outcomes = list(compute(jobs, workers, 2, QUIET))
    assert Counter(jobs.index(outcome.job) for outcome in outcomes) == Counter(range(len(jobs)))
    # Seeds 0 and 1 are the ensemble's members, seed 2 is what is tempered: six tasks, each once.
    assert len(workers.started) == len(set(workers.started)) == 6
    assert workers.most == 2


def test_what_is_final_needs_no_workers(prepared, tmp_path):
    jobs = [Job(run, tmp_path) for run in sweep(prepared, seeds=2)]
    list(compute(jobs, Pretenders(2), 1, QUIET))
    workers = Pretenders(2)
    assert [(o.state, o.attempts) for o in compute(jobs, workers, 1, QUIET)] == [("done", 0)] * len(jobs)
    assert workers.opened == 0


def test_a_finished_composition_needs_no_members(prepared, tmp_path):
    job = Job(small(prepared, 'method={name="ensemble",members=2}'), tmp_path)
    list(compute([job], Pretenders(1), 1, QUIET))
    for done in tmp_path.glob("map-*/done"):
        done.unlink()
    workers = Pretenders(1)
    assert [outcome.state for outcome in compute([job], workers, 1, QUIET)] == ["done"]
    assert not workers.started


def test_one_run_asked_for_twice_is_computed_once_and_told_twice(prepared, tmp_path):
    workers = Pretenders(2)
    jobs = [Job(small(prepared), tmp_path), Job(small(prepared), tmp_path)]
    assert len(list(compute(jobs, workers, 1, QUIET))) == 2
    assert len(workers.started) == 1


@pytest.mark.parametrize(
    ("attempt", "times"),
    [
        (JobResult("failed", message="broke"), 3),
        (JobResult("out_of_memory", message="broke"), 3),
        (JobResult("diverged", message="broke"), 1),
        (JobResult("failed", message="broke", lost=True), LOSSES),
    ],
)
def test_how_often_a_job_is_tried(prepared, tmp_path, attempt, times):
    runs = [small(prepared, "seed=5"), small(prepared, 'method={name="ensemble",members=2}'), small(prepared)]
    workers = Pretenders(1, lambda job, number: attempt if job.run.seed == 0 else JobResult("done"))
    outcomes = {
        runs.index(o.job.run): o for o in compute([Job(run, tmp_path) for run in runs], workers, 3, QUIET)
    }
    assert [outcomes[k].state for k in range(3)] == ["done", attempt.state, attempt.state]
    assert (outcomes[2].attempts, outcomes[2].message) == (times, "broke")
    # The ensemble cannot be composed, and says of which member.
    assert outcomes[1].attempts == 0
    assert outcomes[1].message.startswith("its member map-mlp-seed-0-")
    assert outcomes[1].message.endswith(": broke")


def test_a_divergence_is_remembered(prepared, tmp_path):
    job = Job(small(prepared), tmp_path)
    list(compute([job], Pretenders(1, lambda job, number: JobResult("diverged", message="why")), 2, QUIET))
    workers = Pretenders(1)
    (outcome,) = compute([job], workers, 2, QUIET)
    assert (outcome.state, outcome.message, outcome.attempts, workers.opened) == ("diverged", "why", 0, 0)


def test_a_run_ended_by_force_after_its_last_write_is_done(prepared, tmp_path):
    def killed(job, number):
        write_bytes(job.folder / "done", b"")
        return JobResult("failed", message="killed")

    (outcome,) = compute([Job(small(prepared), tmp_path)], Pretenders(1, killed), 2, QUIET)
    assert (outcome.state, outcome.attempts, outcome.message) == ("done", 1, "")


def test_a_long_sweep_with_losses_and_failures_in_any_order(prepared, tmp_path):
    """600 jobs on 40 places; a third of the starts fail: seed 0 draws which."""
    random = np.random.default_rng(0)
    unlucky = [JobResult("failed", message="x"), JobResult("out_of_memory", message="x"),
               JobResult("failed", message="x", lost=True)]  # fmt: skip

    def fate(job, number):
        return unlucky[random.integers(3)] if random.random() < 1 / 3 else JobResult("done")

    seeds = [small(prepared, f"seed={seed}") for seed in range(400)]
    ensembles = [small(prepared, 'method={name="ensemble",members=3}', f"seed={seed}") for seed in range(200)]
    jobs = [Job(run, tmp_path) for run in random.permutation(np.array(seeds + ensembles, dtype=object))]
    workers = Pretenders(40, fate, random)
    outcomes = list(compute(jobs, workers, 2, QUIET))
    assert Counter(id(outcome.job) for outcome in outcomes) == Counter(id(job) for job in jobs)
    assert workers.most == 40
    assert not workers.given
    by_run = {outcome.job.run: outcome for outcome in outcomes}
    assert {o.state for o in outcomes} == {"done", "failed", "out_of_memory"}
    for run in ensembles:
        members = [by_run.get(small(prepared, f"seed={3 * run.seed + k}")) for k in range(3)]
        if by_run[run].state == "done":
            assert all(member is None or member.state == "done" for member in members)


def test_data_that_are_not_there_are_told_once(tmp_path):
    jobs = [Job(small(tmp_path / "nowhere", f"seed={seed}"), tmp_path) for seed in range(3)]
    with pytest.raises(InputError, match="nowhere"):
        list(compute(jobs, Pretenders(1), 1, QUIET))
