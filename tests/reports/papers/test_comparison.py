import numpy as np
import pytest
from scipy.stats import norm

from retinabench.metrics.comparison import rank_methods
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.measurements import Measurements, MethodRuns
from retinabench.reports.papers.retina_tables import column_cells

KEY, LOSS = ("in_domain", "accuracy"), ("in_domain", "nll")


def studies(seed: int, levels: list[float], runs: int = 4, patients: int = 1000) -> list[MethodRuns]:
    """Methods with these accuracies; patients differ in hardness, which methods share, and runs differ in skill."""
    rng = np.random.default_rng(seed)
    hardness = rng.normal(size=patients)
    groups, label = [], np.ones(patients, int)
    for number, level in enumerate(levels):
        group = MethodRuns(f"method {number}", "m", False, None, label=str(number))
        for _ in range(runs):
            threshold = np.sqrt(1.36) * norm.ppf(level + 0.01 * rng.normal())
            hit = 0.6 * rng.normal(size=patients) + hardness < threshold
            values = dict.fromkeys((KEY, LOSS), float(hit.mean()))
            group.runs.append(Measurements(values))
            group.tests.append(Predictions(np.arange(patients), label, np.where(hit, 0.9, 0.1)))
        groups.append(group)
    ranked, _ = rank_methods({one.label: one.tests for one in groups}, 100, 0, scores=["accuracy", "nll"])
    for one in groups:
        one.rankings = {("in_domain", name): found for name, found in ranked["in_domain"].scores.items()}
    return groups


def bold(groups: list[MethodRuns], key=KEY) -> list[bool]:
    return [cell.emphasis == "best" for cell in column_cells(groups, key, "corrected")]


@pytest.mark.parametrize("key", [KEY, LOSS])
def test_the_best_is_bold_and_so_is_its_equal_and_the_worse_is_not(key):
    """0.90 and 0.90 against 0.80: 100 patients of 1,000, some 9 standard errors of a paired difference."""
    assert bold(studies(0, [0.9, 0.8, 0.9]), key) == [True, False, True]


def test_nothing_is_bold_where_the_best_beats_none():
    assert bold(studies(1, [0.85, 0.85, 0.85])) == [False] * 3
    assert bold(studies(1, [0.85])) == [False]


def test_one_true_winner_is_found():
    """0.90 against 0.85 on the same 1,000 patients, four runs: the difference is four of its standard errors."""
    found = [bold(studies(seed, [0.9, 0.85, 0.85])) for seed in range(20)]
    assert np.mean([one == [True, False, False] for one in found]) > 0.7
    assert sum(any(one) and not one[0] for one in found) <= 2
