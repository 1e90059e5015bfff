"""All entries of the fidelity benchmark on its small targets, at two tiers and three seeds: the submissions of the board.

    python benchmarks/fidelity_board.py --out fidelity-runs [--tiers 100 1000] [--tasks logistic banana …] [--seeds 0 1 2]
        [--data concrete-gap=uci/concrete]

Then `retinabench fidelity board fidelity-runs --out board`. Runs that are done are found, so a stopped command continues. What an entry
cannot do (a likelihood or network that it does not support) is printed with the reason and left out. Cheap tiers and first seeds come first, so
that a command that is stopped early leaves whole tables. Seconds of each run are printed; the last line is their sum.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from itertools import product
from pathlib import Path

import torch
from toolkit import parse

from retinabench.core.errors import InputError, WorkError
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES, entries
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.targets.target import TARGETS

TASKS = (
    "logistic", "banana", "drawn-head", "drawn-head-mlp", "drawn-head-binary", "idrid-head", "idrid-head-mlp",
    "idrid-head-binary",
)  # fmt: skip
WITHOUT_GRADIENTS = ("nngp", "ntk")  # one tier is enough


def main():
    entrants = [*entries(), *UNTRAINED_TITLES]
    runs = {"tiers": [100.0, 1000.0], "seeds": [0, 1, 2], "tasks": list(TASKS), "entries": entrants}
    options = parse(__doc__, out=Path("fidelity-runs"), data=[], **runs)
    torch.set_num_threads(1)
    sources = {task: Path(path) for task, _, path in (word.partition("=") for word in options.data)}
    total, refused = 0.0, set()
    for tier, seed, task, name in product(options.tiers, options.seeds, options.tasks, options.entries):
        if (name, task) in refused or (name in WITHOUT_GRADIENTS and tier != options.tiers[0]):
            continue
        start = time.process_time()
        try:
            run_entry(name, TARGETS.find(task), sources.get(task), budget=tier, seed=seed, out=options.out)
        except (InputError, WorkError) as error:
            refused.add((name, task))
            print(f"{name} {task}: left out: {type(error).__name__}: {error}", flush=True)
            continue
        took = time.process_time() - start
        total += took
        print(f"{name} {task} {tier:g} seed {seed}: {took:.1f} s", flush=True)
    print(f"{total:.0f} s in all")


if __name__ == "__main__":
    main()
