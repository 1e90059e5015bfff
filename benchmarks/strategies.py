"""Which strategy learns fastest? Questions until the mean uncertainty has come down, and width of the rates' intervals.

    python benchmarks/strategies.py [FOLDER ...]

FOLDER: what `retinabench lesions` wrote, or a truth.csv and answers.csv. The table is CSV, as `docs/tables/strategies.csv`. Asked are its network, whose
answers are the same in every repetition, and the synthetic examinees of the publication, whose answers are drawn anew; without a folder, those examinees
on 120 drawn retinas. Ten repetitions, 95 % intervals of the mean. Levels: 50, 80 and 95 % of the way down. The widths are those of the companion's
intervals after a third of the questions, over all cells; strategies whose companion is not valid have none. Half a minute per bank.
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.masks import drawn
from retinabench.concepts.banks.tables import read_reference
from retinabench.concepts.examinees import SYNTHETIC, Examinee, read_answers
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategies import STRATEGIES
from retinabench.concepts.report.paper import EXAMINEES, REPETITIONS, course

LEVELS = {"50 %": 0.5, "80 %": 0.8, "95 %": 0.95}


def main() -> None:
    folders = [Path(argument) for argument in sys.argv[1:]]
    table = csv.writer(sys.stdout)
    table.writerow(["examinee", "strategy", *(f"questions to {level}" for level in LEVELS), "mean width", "widest"])
    if not folders:
        images = drawn(120, population="shifted")
        show(table, "120 drawn retinas", Bank(images.sample_id, images.concepts, images.truth.astype(np.int8)))
    for folder in folders:
        show(table, folder.name, read_reference(folder / "truth.csv")[0], folder / "answers.csv")


def show(table, title: str, bank: Bank, answers: Path | None = None) -> None:
    factories = {name: lambda seed, make=SYNTHETIC[name]: make(bank, seed) for name in EXAMINEES}
    if answers is not None:
        given = read_answers(answers, bank)
        factories = {"network": lambda seed: given, **factories}
    for name, factory in factories.items():
        courses = {strategy: course(bank, factory, strategy) for strategy in STRATEGIES if strategy != "claims"}
        courses["uncertainty, published rule"] = course(bank, factory, "uncertainty", rules="published")
        start = courses["random"][0, 0]
        # The lowest level that every strategy always reached: all end with every question asked.
        lowest = min(float(rows[:, -1].max()) for rows in courses.values())
        for strategy, rows in courses.items():
            levels = [start - share * (start - lowest) for share in LEVELS.values()]
            cells = [interval(mean_interval(questions_to(rows, level)), 0) for level in levels]
            mean, widest = ("", "") if "rule" in strategy else widths(bank, factory, strategy)
            table.writerow([f"{title}, {name}", strategy, *cells, mean, widest])
            sys.stdout.flush()


def questions_to(rows: np.ndarray, level: float) -> np.ndarray:
    """Return the questions until the mean uncertainty is at most `level`, (repetitions,); NaN where it never is."""
    below = rows <= level + 1e-12
    return np.where(below.any(axis=1), below.argmax(axis=1), np.nan)


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean with Student's 95 % interval, as Figure 4 of Fountoukidou and Sznitman (2019) has it."""
    n = len(values)
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def widths(bank: Bank, factory: Callable[[int], Examinee], strategy: str) -> tuple[str, str]:
    mean, widest = [], []
    for seed in range(REPETITIONS):
        third = int(bank.cells.sum()) // 3
        found = examine(bank, factory(seed), strategy=strategy, questions=third, seed=seed).to_dict()
        if not found["companion_valid"]:
            return "", ""
        rates = [one[measure] for one in found["concepts"].values() for measure in ("sensitivity", "specificity")]
        ends = [rate["high"] - rate["low"] for rate in rates if rate["high"] is not None]
        mean.append(np.mean(ends))
        widest.append(np.max(ends))
    return tuple(interval(mean_interval(np.array(values)), 2) for values in (mean, widest))


def interval(values, digits: int) -> str:
    value, low, high, *_ = values
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


if __name__ == "__main__":
    main()
