"""What an engine adds to a trial: Ray against the local pool, and the bookkeeping of 10,000 trials on 1,000 nodes.

    OMP_NUM_THREADS=1 python benchmarks/engines.py [--trials 60] [--rounds 3] [--sweep 10000]

Trials of some 50 ms each (a perceptron, one epoch, its files written and flushed), one at a time. Every round computes
the same trials with either engine, in turns which comes first. The overhead is what lies between two outcomes beyond
the seconds of the attempt: order, way there, way back, bookkeeping; the first trial, which imports PyTorch, is apart.
The simulation computes nothing: workers that are done at once, four for each of 1,000 nodes and as many ahead, so that
only the bookkeeping is left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np

from retinabench.core.progress import QUIET
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.engine import make_engine
from retinabench.experiments.engines.scheduler import Job, JobResult, compute

NODES, PER_NODE, AHEAD = 1000, 4, 2


def trial(data, seed, **given):
    words = ["model.name=mlp", "model.width=8", "optimizer.epochs=1", f"seed={seed}"]
    return load_run(None, [*words, *(f"{key}={value}" for key, value in given.items())], data=str(data))


def turnaround(name, jobs):
    """Return seconds until the first outcome, and (trials,) from one outcome to the next, less those of the attempt."""
    engine = make_engine(
        name, parallel=1, device="cpu", address=None, cpus=1, gpus=0, storage=None, attempts=1, progress=QUIET
    )  # fmt: skip
    ends, inside = [time.perf_counter()], []
    for outcome in engine.compute(jobs):
        assert outcome.state == "done", outcome.message
        ends.append(time.perf_counter())
        inside.append(outcome.seconds)
    return ends[1] - ends[0], np.diff(ends)[1:] - inside[1:], np.array(inside[1:])


def measure(data, root, trials, rounds):
    overheads = {"local": [], "ray": []}
    for number in range(rounds):
        for name in ("local", "ray") if number % 2 == 0 else ("ray", "local"):
            out = root / f"{name}-{number}"
            first, extra, inside = turnaround(name, [Job(trial(data, seed), out) for seed in range(trials)])
            overheads[name].append(np.median(extra))
            print(f"{name:6} first outcome after {first:5.1f} s; then a trial takes {1000 * np.median(inside):6.1f} ms, "
                  f"and {1000 * np.median(extra):5.2f} ms to the next (medians)", flush=True)  # fmt: skip
            shutil.rmtree(out)
    local, ray = (statistics.median(overheads[name]) for name in ("local", "ray"))
    print(
        f"overhead per trial: local pool {1000 * local:.2f} ms, Ray {1000 * ray:.2f} ms, ratio {ray / local:.1f}"
    )


class Instant:
    """Workers that have done everything at once."""

    def __init__(self):
        self.given, self.most = deque(), 0

    def room(self):
        return AHEAD * NODES * PER_NODE - len(self.given)

    def start(self, task, number):
        self.given.append(task)
        self.most = max(self.most, len(self.given))

    def ended(self):
        return [(self.given.popleft(), JobResult("done", 1.0))]


def simulate(data, root, sweep):
    began = time.perf_counter()
    # A configuration of its own each, as a search has them; every tenth an ensemble of three.
    jobs = [
        Job(
            trial(
                data,
                3 * k if k % 10 else k,
                **{"optimizer.lr": lr} | ({} if k % 10 else {"method": "ensemble"}),
            ),
            root,
        )
        for k, lr in enumerate(np.random.default_rng(0).uniform(0.01, 0.1, sweep))
    ]
    made = time.perf_counter()
    workers = Instant()
    outcomes = sum(1 for _ in compute(jobs, lambda: contextlib.nullcontext(workers), 2, QUIET))
    ended = time.perf_counter()
    assert outcomes == sweep
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{sweep} trials, every tenth an ensemble of 3: {made - began:.1f} s to make the runs, "
          f"{ended - made:.1f} s to plan, order and settle them; at most {workers.most} in flight; "
          f"peak memory {peak:.2f} GB")  # fmt: skip


def crowd(given):
    """What the driver asks of Ray with thousands of tasks in flight: they wait for a resource that no node has."""
    import ray

    from retinabench.experiments.engines.ray_cluster import connect

    connect(ray, None)
    began = time.perf_counter()
    task = ray.remote(num_cpus=1, resources={"absent": 1}, max_retries=0)(lambda: None)
    waiting = [task.options(name=f"trial-{k}").remote() for k in range(given)]
    submitted = time.perf_counter()
    looks = 20
    for _ in range(looks):
        ray.wait(waiting, num_returns=1, timeout=0, fetch_local=False)
    ended = time.perf_counter()
    print(f"{given} tasks in flight: {1000 * (submitted - began) / given:.2f} ms to give one to Ray, "
          f"{1000 * (ended - submitted) / looks:.1f} ms for a look at all")  # fmt: skip
    ray.shutdown()


def files(root, sweep):
    """What a continued sweep does first: one look per folder; and what a table of results reads."""
    for number in range(sweep):
        folder = root / f"map-mlp-seed-0-{number:012d}"
        folder.mkdir(parents=True)
        (folder / "done").touch()
        (folder / "metrics.jsonl").write_text(json.dumps({"epoch": 1, "validation_auroc": 0.5}) + "\n")
    began = time.perf_counter()
    found = sum((root / f"map-mlp-seed-0-{number:012d}" / "done").is_file() for number in range(sweep))
    looked = time.perf_counter()
    read = [(folder / "metrics.jsonl").read_text() for folder in root.iterdir()]
    ended = time.perf_counter()
    print(f"{found} finished folders on a local disk: {looked - began:.2f} s to look for done, "
          f"{ended - looked:.2f} s to list them and read one small file of each ({len(read)})")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweep", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        data = root / "data"
        prepare("synthetic", data, recipe=Recipe(16), images=120, seed=0, workers=1, progress=QUIET)
        simulate(data, root / "never", arguments.sweep)
        files(root / "folders", arguments.sweep)
        crowd(AHEAD * NODES * PER_NODE)
        if arguments.trials:
            measure(data, root, arguments.trials, arguments.rounds)


if __name__ == "__main__":
    main()
