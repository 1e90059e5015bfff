"""The figures of an examination: what is drawn where."""

from __future__ import annotations

import json

import numpy as np

from retinabench.concepts.questioning.strategy_comparison import compare_strategies
from retinabench.concepts.report import figures
from retinabench.concepts.report.figures import PUBLISHED, write_figures
from retinabench.concepts.report.snapshot import snapshot
from retinabench.reports.toolkit.figures import HUES, Line, mark
from retinabench.reports.toolkit.number_format import Quantity
from support.examinees import examinee


def test_the_performance_panel_shows_every_count_and_the_band(found):
    bins, grid, mean, sd = figures.arrays(found.examination["common"])
    axes = figures.performance_panel(bins, grid, mean, sd).axes[0]
    dots = axes.lines[-1]
    seen = np.flatnonzero(bins)
    assert np.allclose(dots.get_xdata(), (seen + 0.5) / 100)
    assert dots.get_ydata().tolist() == bins[seen].tolist()
    assert [text.get_text() for text in axes.texts] == ["TN", "FP", "FN", "TP"]
    low, high = figures.limits_of(bins, mean, sd)
    assert low <= (mean - 2 * sd).min()
    assert high >= max(bins.max(), (mean + 2 * sd).max())
    assert axes.get_ylim() == (1.06 * low, 1.06 * high)


def test_rates_are_dots_with_intervals_and_unknown_ones_intervals_alone(found):
    pairs = found.rates
    rows = [
        (one.concept, [figures.RateMark(HUES[0], rate.quantity) for rate in (one, other)])
        for one, other in pairs
    ]
    axes = figures.interval_panel(rows).axes[0]
    drawn = sum(rate.quantity.defined for pair in pairs for rate in pair)
    assert len(axes.lines) == 2 * len(rows) + drawn + 1  # intervals, dots, the line at one half
    assert [text.get_text() for text in axes.get_yticklabels()] == [name for name, _ in rows]
    unknown = figures.interval_panel(
        [("x", [figures.RateMark(HUES[0], Quantity(float("nan"), 0.0, 1.0))] * 2)]
    )
    assert len(unknown.axes[0].lines) == 3


def test_the_course_of_the_uncertainty_fits_the_panel():
    asked, mean = np.arange(11.0), np.linspace(2, 0.5, 11)
    axes = figures.progress_panel([Line(mark(0), asked, mean, mean - 0.1, mean + 0.1)]).axes[0]
    low, high = axes.get_ylim()
    assert low < 0.5
    assert high > 2
    assert np.array_equal(axes.lines[0].get_ydata(), mean)


def test_three_figures_and_their_numbers_are_written(bank, found, tmp_path):
    who = examinee(bank)
    comparison = compare_strategies(bank, lambda _: who, repetitions=2, questions=12)
    state = snapshot(bank, who, ("random", "precision"))
    files = write_figures(found.examination, comparison, state, tmp_path, questions=12, seed=0, reading="std")
    assert {file.stem for file in files} == {"figure-2", "figure-3", "figure-4"}
    assert all(file.stat().st_size > 1000 for file in files)
    numbers = json.loads((tmp_path / "synthetic.json").read_text())
    assert set(numbers) == set(PUBLISHED)
    for one in numbers.values():
        assert one["repetitions"] == 2
        assert one["questions"][-1] == 12
        assert list(one["strategies"]) == list(comparison.strategies)
    drawn = next(file for file in files if file.name == "figure-2.svg").read_text()
    assert "<svg" in drawn

    again = write_figures(
        found.examination, comparison, None, tmp_path / "few", questions=12, seed=0, reading="std"
    )
    assert {file.stem for file in again} == {"figure-2", "figure-4"}
