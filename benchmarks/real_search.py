"""Settings of the methods that the defaults of `benchmarks/real.py` leave far behind, chosen on IDRiD's 413 training images.

    python benchmarks/real_search.py --out results-real       # after the first seed of real.py, whose images and features it reads

Every point of a small grid is a patient-disjoint 5-fold cross-validation of the training images alone, the official test images
left out; the lowest NLL wins. The command continues where it was stopped, and prints the scores of all points. `TUNED` in
`real.py` holds the winners.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from real import FOLDS, PRIOR

from retinabench.core.errors import WorkError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources, execute_run
from retinabench.experiments.run import ImageRuns
from retinabench.metrics.classification import auroc, nll

Grid = tuple[
    list[str], dict[str, tuple[float, ...]]
]  # the settings of all points, and the values of the others
COLD, RATES = {"method.temperature": (1, 0.1, 0.01, 0.001)}, {"optimizer.lr": (0.02, 0.005)}
GRIDS: dict[str, Grid] = {
    "SGLD": (["method=sgld", "method.samples=60", PRIOR], COLD | RATES),
    "SGHMC": (["method=sghmc", "method.samples=60", PRIOR], COLD | RATES),
    "cyclical SGHMC": (["method=csghmc", "method.samples=20", PRIOR], COLD | RATES),
    "anchored ensemble": (
        ["method=ensemble", "method.member=anchored", "method.members=5", PRIOR],
        {"optimizer.l2": (0.15, 0.5, 1.5)},
    ),
    "sequential anchored": (
        ["method=sequential_anchored", "method.samples=10", PRIOR],
        {"optimizer.l2": (0.15, 0.5, 1.5, 5.0)},
    ),
    "FSVI": (["method=fsvi", "method.samples=64"], {"method.prior_variance": (1, 10, 100)} | RATES),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results-real"), help="that of real.py")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; default: OUT/search")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    task = load_task(str(options.out / "data"), "in_domain")
    training = np.flatnonzero(task.records.split != "test")
    none = np.empty(0, np.intp)
    task = replace(task, splits={"train": training, "validation": none, "test": none})
    for label, (fixed, free) in GRIDS.items():
        for values in product(*free.values()):
            point = [f"{name}={value}" for name, value in zip(free, values, strict=True)]
            run = load_run(
                "real/frozen", [*fixed, *point, f"cross_validation.folds={FOLDS}"], data=str(options.out / "data"),
                task="in_domain", seed=0,
            )  # fmt: skip
            try:
                found = ImageRuns(task).read(
                    execute_run(
                        ImageRuns(task), run, options.runs or options.out / "search", Resources("cpu")
                    )
                )
            except WorkError as error:
                print(f"{label} {' '.join(point)}: {error}", flush=True)
                continue
            assert len(found) == len(training)
            scores = nll(found.label, found.prob), auroc(found.label, found.prob)
            print(f"{label} {' '.join(point)}: NLL {scores[0]:.4f}, AUROC {scores[1]:.4f}", flush=True)


if __name__ == "__main__":
    main()
