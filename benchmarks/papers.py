"""What the papers' tables and figures cost: seconds per file to measure, per table and per figure to write.

    python benchmarks/papers.py --images 42670 --shifted 2929 --methods 6 --seeds 6

Methods are imagined; a file's cost depends on its images alone. CPU time of all processes beside the wall clock, since
a busy machine stretches only the latter.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from retinabench.core.progress import QUIET
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.collection import collect
from retinabench.reports.papers.write import table_files, tables_of, write


def imagined(method: int, seed: int, images: int, shifted: int) -> Predictions:
    """One run: two images per patient, a fifth referable, five samples."""
    rng = np.random.default_rng([method, seed])
    shared = np.random.default_rng(0)
    n = images + shifted
    grade = shared.choice(5, n, p=(0.73, 0.07, 0.15, 0.03, 0.02))
    evidence = np.array([-2.6, -1.3, 1.2, 2.6, 3.2])[grade] + 1.5 * shared.normal(size=n)
    logits = (evidence + rng.normal(size=n))[:, None] + (0.5 + 0.1 * method) * rng.normal(size=(n, 5))
    return Predictions(
        np.array([f"image-{k}" for k in range(n)]), (grade >= 2).astype(int), 1 / (1 + np.exp(-logits)), grade,
        np.array([f"patient-{k // 2}" for k in range(n)]), np.where(np.arange(n) < images, "in_domain", "shifted"),
        metadata={"title": f"method {method}", "setting": str(method), "task": "country_shift", "seed": seed},
    )  # fmt: skip


def clock() -> tuple[float, float]:
    """Wall and CPU seconds, of this process and of those that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("images", 4000), ("shifted", 1000), ("methods", 3), ("seeds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rules", default="corrected")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for method in range(given.methods):
            for seed in range(given.seeds):
                files.append(Path(folder) / f"{method}-{seed}.parquet")
                write_predictions(imagined(method, seed, given.images, given.shifted), files[-1])
        marks = [clock()]
        collection = collect(files, None, given.rules, 0, 0, given.workers, QUIET)
        marks.append(clock())
        tables = tables_of(collection)[0]
        table_files(tables, Path(folder) / "tables")
        marks.append(clock())
        written = write(collection, Path(folder) / "all", None, QUIET)
        marks.append(clock())
    figures = sum(file.suffix == ".png" for file in written)
    print(
        f"{len(files)} files of {given.images:,} + {given.shifted:,} images, {given.workers} processes, rules {given.rules}"
    )
    for what, count, before, after in (
        ("read and measure a file", len(files), marks[0], marks[1]),
        ("write a table", len(tables), marks[1], marks[2]),
        ("draw a figure in three formats", figures, marks[2], marks[3]),
    ):
        wall, used = after[0] - before[0], after[1] - before[1]
        print(
            f"{what:<32}{count:>5} x {used / count:7.2f} s CPU; together {wall:7.1f} s wall, {used:7.1f} s CPU"
        )
    print(f"load average of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
