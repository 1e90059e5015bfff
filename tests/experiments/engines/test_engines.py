import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from retinabench.core.errors import QUIET, DivergedError, InputError, WorkError
from retinabench.core.files import write_bytes
from retinabench.experiments.engines import engine as engines
from retinabench.experiments.engines import worker
from retinabench.experiments.engines.engine import LocalEngine, make_engine
from retinabench.experiments.engines.scheduler import LOSSES, Job, JobResult, ScheduledJob, compute
from retinabench.experiments.engines.worker import classify, output_to, request_for, run_request
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from support.forking import THREADS, WARM, fork
from support.helpers import make_prepared
from support.sweeps import SLOW, bits, meanwhile, met, small, sweep


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


def test_a_finished_composition_needs_no_members(prepared, tmp_path):
    job = Job(small(prepared, 'method={name="ensemble",members=2}'), tmp_path)
    list(compute([job], Pretenders(1), 1, QUIET))
    for done in tmp_path.glob("map-*/done"):
        done.unlink()
    workers = Pretenders(1)
    assert [outcome.state for outcome in compute([job], workers, 1, QUIET)] == ["done"]
    assert not workers.started


@pytest.mark.parametrize(
    ("attempt", "times"),
    [
        (JobResult("failed", message="broke"), 3), (JobResult("out_of_memory", message="broke"), 3),
        (JobResult("diverged", message="broke"), 1), (JobResult("failed", message="broke", lost=True), LOSSES),
    ],
)  # fmt: skip
def test_how_often_a_job_is_tried(prepared, tmp_path, attempt, times):
    runs = [small(prepared, "seed=5"), small(prepared, 'method={name="ensemble",members=2}'), small(prepared)]
    workers = Pretenders(1, lambda job, number: attempt if job.run.seed == 0 else JobResult("done"))
    outcomes = {runs.index(o.job.run): o for o in compute([Job(run, tmp_path) for run in runs], workers, 3, QUIET)}
    assert [outcomes[k].state for k in range(3)] == ["done", attempt.state, attempt.state]
    assert (outcomes[2].attempts, outcomes[2].message) == (times, "broke")
    # The ensemble cannot be composed, and says of which member.
    assert outcomes[1].attempts == 0
    assert outcomes[1].message.startswith("its member map-mlp-seed-0-")
    assert outcomes[1].message.endswith(": broke")


def test_a_run_ended_by_force_after_its_last_write_is_done(prepared, tmp_path):
    def killed(job, number):
        write_bytes(job.folder / "done", b"")
        return JobResult("failed", message="killed")

    (outcome,) = compute([Job(small(prepared), tmp_path)], Pretenders(1, killed), 2, QUIET)
    assert (outcome.state, outcome.attempts, outcome.message) == ("done", 1, "")


def test_a_long_sweep_with_losses_and_failures_in_any_order(prepared, tmp_path):
    """300 jobs on 20 places; a third of the starts fail: seed 0 draws which."""
    random = np.random.default_rng(0)
    unlucky = [JobResult("failed", message="x"), JobResult("out_of_memory", message="x"),
               JobResult("failed", message="x", lost=True)]  # fmt: skip

    def fate(job, number):
        return unlucky[random.integers(3)] if random.random() < 1 / 3 else JobResult("done")

    seeds = [small(prepared, f"seed={seed}") for seed in range(200)]
    ensembles = [small(prepared, 'method={name="ensemble",members=3}', f"seed={seed}") for seed in range(100)]
    jobs = [Job(run, tmp_path) for run in random.permutation(np.array(seeds + ensembles, dtype=object))]
    workers = Pretenders(20, fate, random)
    outcomes = list(compute(jobs, workers, 2, QUIET))
    assert Counter(id(outcome.job) for outcome in outcomes) == Counter(id(job) for job in jobs)
    assert workers.most == 20
    assert not workers.given
    by_run = {outcome.job.run: outcome for outcome in outcomes}
    assert {o.state for o in outcomes} == {"done", "failed", "out_of_memory"}
    for run in ensembles:
        members = [by_run.get(small(prepared, f"seed={3 * run.seed + k}")) for k in range(3)]
        if by_run[run].state == "done":
            assert all(member is None or member.state == "done" for member in members)


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (DivergedError("no number"), "diverged", "no number"),
        (WorkError("disk full"), "failed", "disk full"),
        (InputError("is wrong", file="x.toml", hint="Mend it."), "failed", "x.toml: is wrong. Mend it."),
        (MemoryError(), "out_of_memory", "MemoryError"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried"), "out_of_memory", "OutOfMemoryError: CUDA out of memory."),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out_of_memory",
         "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"),
        (RuntimeError("line\x1b[1m one\nline two"), "failed", "RuntimeError: line\\x1b[1m one"),
    ],
)  # fmt: skip
def test_every_error_has_a_state_and_one_line(error, state, message):
    assert classify(error) == (state, message)


def test_other_versions_and_other_data_are_refused(tmp_path):
    run = small(make_prepared(tmp_path / "data", size=8))
    given = request_for(ScheduledJob(run, tmp_path / "out" / "map-mlp-seed-0-of-other-data"), 1, "cpu", 1)
    ended = run_request(given)
    assert ended.state == "failed"
    assert "holds other data" in ended.message
    ended = run_request(replace(given, versions={"retinabench": "0.0.1", "torch": "1.0"}, number=2))
    assert "the command was given with retinabench 0.0.1, torch 1.0. Install the same" in ended.message
    log = given.log.read_text()
    assert log.index("--- start 1,") < log.index("holds other data") < log.index("--- start 2,")


def test_paths_are_in_full_since_workers_start_elsewhere(tmp_path, monkeypatch):
    run = small(make_prepared(tmp_path / "data", size=8))
    monkeypatch.chdir(tmp_path)
    relative = run.model_copy(update={"data": "data"})
    folder = (tmp_path / "out" / "x").relative_to(tmp_path)
    given = request_for(ScheduledJob(relative, folder), 1, "cpu", 1)
    assert given.run["data"] == str(tmp_path / "data")
    assert given.folder == tmp_path / "out" / "x"


def test_the_log_holds_what_is_printed_by_whatever_means(tmp_path, capfd):
    with output_to(tmp_path / "logs" / "log"):
        print("from python")
        os.write(2, b"from a library\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    print("afterwards")
    assert (tmp_path / "logs" / "log").read_text().splitlines() == ["from python", "from a library", "from a child"]
    assert capfd.readouterr().out == "afterwards\n"


@pytest.fixture
def warm(monkeypatch, one_thread):
    """Let processes be forks of this one, which has imported everything, and those that train together forks of them."""
    monkeypatch.setattr(engines, "SPAWN", WARM)
    monkeypatch.setattr(worker, "SPAWN", WARM)


def compute_by_two(tmp_path, *words):
    run = small(make_prepared(tmp_path / "data", size=8), *words)
    (outcome,) = LocalEngine(places=1, device="cpu", processes=2).compute([Job(run, tmp_path / "out")])
    return outcome


@pytest.mark.filterwarnings(THREADS)
def test_two_processes_compute_a_run(tmp_path, warm):
    outcome = compute_by_two(tmp_path)
    assert (outcome.state, outcome.attempts) == ("done", 1), outcome.message
    assert json.loads((outcome.folder / "run.json").read_text())["processes"] == 2
    assert (outcome.folder / "predictions.parquet").is_file()


@pytest.mark.filterwarnings(THREADS)
def test_what_ends_one_of_them_ends_the_run(tmp_path, warm):
    outcome = compute_by_two(tmp_path, "optimizer.lr=1e30")
    assert (outcome.state, outcome.attempts) == ("diverged", 1)
    assert "not finite" in outcome.message


@pytest.mark.filterwarnings(THREADS)
def test_a_fault_costs_what_it_strikes(tmp_path, warm):
    """Kill -9, a crash, too little memory and a divergence in one sweep; the rest has the bits of a serial loop."""
    prepared, out = make_prepared(tmp_path / "data", size=8), tmp_path / "pool"
    runs = sweep(prepared, seeds=3)
    runs.append(crashing := small(prepared, "seed=8", f"optimizer.epochs={SLOW}"))
    diverging = small(prepared, "seed=7", "optimizer.lr=1e30")
    huge = small(prepared, "seed=6", "model.width=1000000000000")  # 768 TB, more than an address can say
    jobs = [Job(run, out) for run in (*runs, diverging, huge)]
    engine = LocalEngine(places=2, device="cpu")
    strikes = {"map-mlp-seed-9": signal.SIGKILL, "map-mlp-seed-8": signal.SIGSEGV}
    with meanwhile(*(lambda n=n, s=s: os.kill(met(out, n), s) for n, s in strikes.items())):
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
    job = Job(small(prepared, "optimizer.epochs=100000"), out)
    command = fork(lambda: list(LocalEngine(places=1, threads=2, device="cpu").compute([job])))
    try:
        child = met(out, "map-mlp")
    finally:
        os.kill(command, signal.SIGKILL)
        os.waitpid(command, 0)
    (described,) = out.glob("*/run.json")
    # What the caller's environment says of threads is not what a run takes.
    assert json.loads(described.read_text())["threads"] == 2
    end = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{child}").exists()


DEFAULT = {
    "parallel": None, "device": "cpu", "address": None, "cpus": 1.0, "gpus": 0.0, "storage": None, "progress": QUIET,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("local", {"cpus": 0}, "more than 0 CPUs"),
        ("local", {"device": "auto", "gpus": 1.5}, "a part of a GPU or a whole number of them"),
        ("local", {"gpus": 1}, "Leave out --gpus"),
        ("local", {"address": "auto"}, "are for --engine ray"),
        ("local", {"storage": "s3://bucket"}, "are for --engine ray"),
        ("ray", {"address": "ray://head:10001"}, "remote client, which is not supported"),
        ("ray", {"device": "cuda:1"}, "Ray chooses the GPU"),
        ("ray", {"storage": "nonsense://bucket"}, "nonsense://bucket: cannot be written to"),
        ("ray", {"storage": "file:///proc/nowhere"}, "cannot be written to"),
    ],
)
def test_an_impossible_option_is_one_line(name, given, says):
    if name == "ray":
        pytest.importorskip("ray")
    with pytest.raises(InputError, match=says):
        make_engine(name, **{**DEFAULT, **given})


def test_without_ray_its_engine_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'retinabench\[cluster\]'"):
        make_engine("ray", **DEFAULT)


@pytest.mark.parametrize(("cpus", "threads"), [(0.25, 1), (1, 1), (2, 2), (3.5, 3)])
def test_the_cores_of_a_run_are_its_threads(cpus, threads, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    engine = make_engine("local", **{**DEFAULT, "cpus": cpus})
    assert (engine.threads, engine.places) == (threads, int(8 / cpus))
    assert make_engine("local", **{**DEFAULT, "cpus": cpus, "parallel": 3}).places == 3


@pytest.mark.parametrize(
    ("gpus", "parallel", "expected"),
    [
        (0, None, ["4", "6"]),  # one each where there are any
        (0.5, None, ["4", "4", "6", "6"]),
        (0.5, 3, ["4", "4", "6"]),
        (1, 5, ["4", "6"]),
        (0, 3, ["4", "6", "4"]),
        (2, None, ["4,6"]),
        (0.3, None, ["4", "4", "4", "6", "6", "6"]),  # a fourth run would not fit into the first
        (0.6, None, ["4", "6"]),
    ],
)
def test_every_place_has_its_gpu(gpus, parallel, expected, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.setattr(engines.torch.cuda, "device_count", lambda: 2)
    engine = make_engine("local", **{**DEFAULT, "device": "auto", "gpus": gpus, "parallel": parallel})
    assert (engine.gpus, engine.places) == (expected, len(expected))
