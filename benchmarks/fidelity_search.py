"""Searches the learning rate of every entry that has one, alike for all, at the budget of a tier, on a posterior that is on no board.

    python benchmarks/fidelity_search.py --out fidelity-search [--tiers 100] [--entries map …]

The development target is `drawn-head` with the classes "no retinopathy" and "any", by a head of 90 weights; its reference is made first (HMC,
under a minute). An entry runs at its rate of `docs/tables/fidelity-tuning.csv` (`fidelity tune` on `fundus-small`; that of the deep
ensemble if it has none) times 1/√10, 1 and √10, with the seeds 0 and 1. While the best rate is at an end, the next one is tried.
The score is the mean total variation from the reference over all test points, which the boards rank by.

Writes `docs/tables/fidelity-search.csv`: all rates, their scores, and seconds of CPU of both seeds. A method states the best rate of a tier in
its `FIDELITY`. A stopped command continues. All entries take 3 minutes of one core at 100 gradients and 16 at 1,000.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import csv
import math
import re
import time
from itertools import product
from pathlib import Path

import torch
from toolkit import keep_lines, kept_lines, parse

from retinabench.core.errors import InputError, WorkError
from retinabench.fidelity.distances import total_variation
from retinabench.fidelity.reference.make_reference import make_reference
from retinabench.fidelity.reference.reference_file import predictive, read_reference, write_reference
from retinabench.fidelity.submissions.entries import entries
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS

TABLES = Path(__file__).parents[1] / "docs" / "tables"
TARGET = TARGETS["drawn-head-binary"].model_copy(
    update={"name": "drawn-head-any", "read_options": {"name": "drawn-head", "referable_from": 1}, "sha256": ""}
)
SEEDS, MOST = (0, 1), 6  # steps of √10 from the first rate


def main() -> None:
    searched = [name for name, one in entries().items() if "lr" in one.categorical.get("optimizer", {})]
    options = parse(__doc__, out=Path("fidelity-search"), tiers=[100.0], entries=searched)
    torch.set_num_threads(1)
    data, file, kept = load(TARGET), options.out / "reference.npz", options.out / "rows.jsonl"
    options.out.mkdir(exist_ok=True)
    if not file.exists():
        chains = {"chains": 4, "burn_in": 200, "keep": 2000, "seed": 0}
        write_reference(file, make_reference(TARGET, data, options.out / "chains", **chains))
    wanted = predictive(read_reference(TARGET, data.sha256, file))
    rows = {tuple(row[:4]): row[4:] for row in kept_lines(kept)}
    chosen = {row[0]: row[2] for row in csv.reader((TABLES / "fidelity-tuning.csv").open())}

    def score(name: str, tier: float, rate: float) -> float:
        for key in ((name, tier, rate, seed) for seed in SEEDS):
            if key not in rows:
                start, value = time.process_time(), math.inf
                try:
                    words = [f"optimizer.lr={rate}"]
                    run = run_entry(name, TARGET, budget=tier, seed=key[3], out=options.out / "runs", overrides=words)
                    found = read_submission(run, TARGET, len(data.test), data.sha256)
                    value = float(total_variation(found.values, wanted).mean())
                except (InputError, WorkError) as error:
                    print(f"{key}: {error}", flush=True)
                rows[key] = [value, time.process_time() - start]
                keep_lines(kept, [*key, *rows[key]])
        return sum(rows[name, tier, rate, seed][0] for seed in SEEDS) / len(SEEDS)

    lines = ["entry,gradients,rate,total variation,seconds"]
    for tier, name in product(options.tiers, options.entries):
        first = float(re.search(r"lr ([\d.]+)", chosen.get(name, chosen["ensemble"]))[1])
        rates, scores, steps = {}, {}, [-1, 0, 1]
        while steps:
            rates |= {step: float(f"{first * 10 ** (step / 2):.2g}") for step in steps}
            scores |= {step: score(name, tier, rates[step]) for step in steps}
            best = min(scores, key=scores.__getitem__)
            steps = [step for step in (best - 1, best + 1) if step not in scores and abs(step) <= MOST]
        print(f"{name} {tier:g}: {rates[best]}", flush=True)
        for step in sorted(rates, key=rates.__getitem__) if math.isfinite(scores[best]) else ():
            seconds = sum(rows[name, tier, rates[step], seed][1] for seed in SEEDS)
            lines.append(f"{name},{tier:g},{rates[step]},{scores[step]:.5f},{seconds:.0f}")
    (TABLES / "fidelity-search.csv").write_text("\n".join(lines) + "\n")
    print(f"{sum(took for _, took in rows.values()) / 60:.0f} minutes of one core")


if __name__ == "__main__":
    main()
