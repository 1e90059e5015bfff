"""Times the leaderboard site with many submissions, and weighs it.

    python benchmarks/site.py [--methods 20] [--seeds 5] [--bootstrap 1000] [--out FOLDER]

Every submission knows the labels of `retinabench-drawn-1-mini` up to noise; the baselines that come with the package are beside them.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from retinabench.data.frozen.definition import truth_of
from retinabench.predictions.table import Predictions
from retinabench.reports.leaderboard.board import make_boards
from retinabench.reports.leaderboard.site import write_site
from retinabench.reports.leaderboard.submission import Card, Entry

NAME = "retinabench-drawn-1-mini"


def noisy(signal: float, seed: int) -> Predictions:
    """Return predictions of the test images that know the label up to noise."""
    truth = truth_of(NAME)
    rows = np.flatnonzero(truth.split == "test")
    z = signal * (2.0 * truth.label[rows] - 1) + np.random.default_rng(seed).normal(size=len(rows))
    return Predictions(
        truth.image_id[rows],
        truth.label[rows],
        1 / (1 + np.exp(-z)),
        grade=truth.grade[rows],
        patient_id=truth.patient_id[rows],
        domain=truth.domain[rows],
        split=truth.split[rows],
        metadata={"method": "noise", "seed": seed},
    )


def entry(number: int, seeds: int) -> Entry:
    """Return a submission of some seeds."""
    card = Card(
        name=f"noise-{number}",
        title=f"Noise {number}",
        method="Noise around the label.",
        authors="nobody",
        code="https://example.org/noise",
        compute="one core",
        hours=0.1,
        pretrained=False,
        data=(),
        ensemble=1,
        tuned_on="nothing",
    )
    files = tuple(noisy(0.6 + 0.1 * number, 100 * number + seed) for seed in range(seeds))
    return Entry(card, "submission", {NAME: files})


def main() -> None:
    """Build the site once, and print processor seconds, memory and sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp()) / "site"
    start = time.process_time()
    boards = make_boards(
        [entry(number, options.seeds) for number in range(options.methods)],
        [NAME],
        bootstrap=options.bootstrap,
    )
    scored = time.process_time()
    write_site(boards, out)
    done = time.process_time()
    files = [path for path in out.rglob("*") if path.is_file()]
    pages = {path: path.stat().st_size for path in files if path.suffix == ".html"}
    largest = max(pages, key=lambda path: pages[path])
    print(f"{len(boards[0].entries)} entries, {options.methods} of them with {options.seeds} seeds")
    print(f"scores {scored - start:.0f} s, pages {done - scored:.0f} s of one core")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    print(f"largest page {largest.relative_to(out)}: {pages[largest] / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
