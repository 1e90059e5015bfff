"""Training beside another busy process: what letting idle OpenMP threads sleep saves, and what it costs alone.

    python benchmarks/busy_machine.py [--images 800] [--epochs 2] [--rounds 3]
    python benchmarks/busy_machine.py --demo [--against FOLDER] [--rounds 3]

The training is that of the demo's MC dropout network, cut down: 64 x 64 drawn images, all cores, a process of its own. It
runs alone and beside one process that computes without end, with OMP_WAIT_POLICY=PASSIVE and a short GOMP_SPINCOUNT (which every command
and every worker sets) and without it (OpenMP's default, by which idle threads spin). Medians over the rounds of the seconds of the
training, start of Python apart. The limits: beside the busy process at most 2.5 times as long as alone, and alone at most
5 % longer than without the policy. The machine should have nothing else to do.

`--demo` measures the whole command `demo` instead, by the clock, which trains its networks side by side with one thread each;
FOLDER is the `src` of another version, such as 0.1.0, which runs alone for comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from retinabench.core.subprocesses import SPIN_COUNT, SPINS, WAIT_POLICY
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe

BESIDE, ALONE = 2.5, 1.05  # the limits
COMMAND = """
from importlib import import_module
try:
    main = import_module("retinabench.cli.main").main
except ModuleNotFoundError:  # version 0.1.0
    main = import_module("retinabench.cli").main
main()
"""
GIVE_UP = 20.0  # times as long as alone: the measurement beside the busy process ends there


def train(data, out, epochs):
    """Train once in this process and print the seconds."""
    from retinabench.experiments.config import load_run
    from retinabench.experiments.run import execute

    run = load_run("demo/dropout", [f"optimizer.epochs={epochs}", "optimizer.warmup=0"], data=data)
    began = time.perf_counter()
    execute(run, Path(out))
    print(time.perf_counter() - began)


@contextlib.contextmanager
def busy(count):
    """Let `count` processes compute without end."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(data, out, epochs, passive, others, limit=None):
    """Return the seconds of one training in a process of its own, or `limit` where it takes longer."""
    own = {
        key: value
        for key, value in os.environ.items()
        if key not in (WAIT_POLICY, SPIN_COUNT, "OMP_NUM_THREADS")
    }
    own |= {WAIT_POLICY: "PASSIVE", SPIN_COUNT: SPINS} if passive else {}
    command = [sys.executable, __file__, "--train", str(data), str(out), "--epochs", str(epochs)]
    with busy(others):
        try:
            done = subprocess.run(command, env=own, capture_output=True, text=True, check=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return float(limit)
    return float(done.stdout)


def demo_seconds(source, out, others):
    """Return the wall seconds of the whole demo of a version, from nothing."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    if source is not None:
        own["PYTHONPATH"] = str(source)
    with busy(others):
        began = time.perf_counter()
        command = [sys.executable, "-c", COMMAND, "demo", "--out", str(out), "--quiet"]
        subprocess.run(command, env=own, capture_output=True, check=True)
        return time.perf_counter() - began


def whole_demo(rounds, against):
    """Print the seconds of the demo alone, beside a busy process, and of another version alone."""
    kinds = {"alone": (None, 0), "beside one busy process": (None, 1)}
    if against is not None:
        kinds["other version, alone"] = (against, 0)
    found = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            for name, (source, others) in kinds.items():
                found[name].append(demo_seconds(source, Path(scratch) / f"{number}-{name}", others))
    for name, values in found.items():
        print(f"{name}: {statistics.median(values):.1f} s (median of {rounds})")
    alone = statistics.median(found["alone"])
    ratio = statistics.median(found["beside one busy process"]) / alone
    print(f"beside / alone: {ratio:.2f} (limit {BESIDE})")
    if against is None:
        return int(ratio > BESIDE)
    slower = alone / statistics.median(found["other version, alone"])
    print(f"alone / other version: {slower:.3f} (limit {ALONE})")
    return int(ratio > BESIDE or slower > ALONE)


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--images", type=int, default=800)
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    options.add_argument("--demo", action="store_true")
    options.add_argument("--against", type=Path, metavar="FOLDER")
    given = options.parse_args()
    if given.demo:
        return whole_demo(given.rounds, given.against)
    if given.train:
        return train(*given.train, given.epochs)
    found = {(passive, others): [] for passive in (True, False) for others in (0, 1)}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        prepare("synthetic", data, recipe=Recipe(64), images=given.images)
        for number in range(given.rounds):
            for passive, others in sorted(found, key=lambda key: (key[1], key[0] != (number % 2 == 0))):
                out = Path(scratch) / f"{number}-{passive}-{others}"
                alone = found[passive, 0]
                limit = GIVE_UP * statistics.median(alone) + 30 if others else None
                found[passive, others].append(seconds(data, out, given.epochs, passive, others, limit))
    median = {key: statistics.median(values) for key, values in found.items()}
    print(
        f"{os.cpu_count()} cores, {given.images} images, {given.epochs} epochs, {given.rounds} rounds; seconds"
    )
    print(f"{'':28}{'alone':>8}{'beside':>8}{'ratio':>8}")
    for passive, name in ((True, "threads sleep (PASSIVE)"), (False, "threads spin (default)")):
        alone, beside = median[passive, 0], median[passive, 1]
        print(f"{name:28}{alone:8.1f}{beside:8.1f}{beside / alone:8.2f}")
    slower = median[True, 0] / median[False, 0]
    ratio = median[True, 1] / median[True, 0]
    print(f"beside / alone with the policy: {ratio:.2f} (limit {BESIDE})")
    print(f"alone, with / without the policy: {slower:.3f} (limit {ALONE})")
    return int(ratio > BESIDE or slower > ALONE)


if __name__ == "__main__":
    sys.exit(main())
