"""Which strategy learns fastest? Questions until the mean uncertainty has come down, and width of the rates' intervals.

Ten repetitions, 95 % intervals of the mean. The width is that of the companion's intervals of sensitivity and specificity,
averaged over all cells, after a third of the questions; strategies whose companion is not valid have none.

    python benchmarks/strategies.py [FOLDER …]

FOLDER: what `retinabench lesions` wrote. Asked are its network and the synthetic examinees of the publication; without a
folder, those examinees on 120 drawn retinas. Seconds per examinee.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from retinabench.concepts.bank import Bank
from retinabench.concepts.comparison import COMPARED, compare_strategies, mean_interval
from retinabench.concepts.examinees import SYNTHETIC, Examinee
from retinabench.concepts.files import read_answers, read_bank
from retinabench.concepts.lesions import drawn
from retinabench.concepts.questioning import examine

REPETITIONS = 10
PUBLISHED = ("biased-1", "biased-2", "unbiased")


def main() -> None:
    folders = [Path(argument) for argument in sys.argv[1:]]
    if not folders:
        images = drawn(120, population="shifted")
        show("120 drawn retinas", Bank(images.sample_id, images.concepts, images.truth.astype(np.int8)))
    for folder in folders:
        show(str(folder), read_bank(folder / "truth.csv"), folder / "answers.csv")


def show(title: str, bank: Bank, answers: Path | None = None) -> None:
    print(f"{title}: {bank.samples} samples, {int(bank.cells.sum())} questions")
    factories = {name: lambda seed, make=SYNTHETIC[name]: make(bank, seed) for name in PUBLISHED}
    if answers is not None:
        table = read_answers(answers, bank)
        factories = {"network": lambda seed: table, **factories}
    for name, factory in factories.items():
        found = compare_strategies(bank, factory, repetitions=REPETITIONS)["strategies"]
        levels = list(found["random"]["questions_to"])
        print(
            f"\n{name:<30}"
            + "".join(f"{f'to {level}':>22}" for level in levels)
            + f"{'width of intervals':>22}"
        )
        for strategy in COMPARED:
            cells = [cell(found[strategy]["questions_to"][level]) for level in levels]
            print(
                f"  {strategy:<28}"
                + "".join(f"{text:>22}" for text in [*cells, width(bank, factory, strategy)])
            )
    print()


def width(bank: Bank, factory: Callable[[int], Examinee], strategy: str) -> str:
    """Mean width of the companion's intervals over all cells that are not empty, after a third of the questions."""
    widths = []
    for seed in range(REPETITIONS):
        found = examine(
            bank, factory(seed), strategy=strategy, questions=int(bank.cells.sum()) // 3, seed=seed
        ).to_dict()
        if not found["companion_valid"]:
            return "-"
        rates = [
            one[measure] for one in found["concepts"].values() for measure in ("sensitivity", "specificity")
        ]
        widths.append(np.mean([rate["high"] - rate["low"] for rate in rates if rate["high"] is not None]))
    mean, low, high = mean_interval(np.array(widths))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def cell(one: dict[str, float | None]) -> str:
    if one["value"] is None:
        return f"{one['reached']} of {REPETITIONS} reach it"
    return f"{one['value']:.0f} [{one['low']:.0f}, {one['high']:.0f}]"


if __name__ == "__main__":
    main()
