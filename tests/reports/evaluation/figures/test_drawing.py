"""The figures of the page hold the numbers that they are given, in the places that they state."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.reports.evaluation.figures.drawing import (
    NHS,
    Control,
    Uncertainties,
    histogram_panel,
    referral_panel,
    reliability_panel,
    roc_panel,
)
from retinabench.reports.toolkit.figures import Line
from retinabench.reports.toolkit.style import GOOD, mark

X = np.linspace(0, 1, 5)


def curve(axes, color):
    return next(one for one in axes.lines if one.get_color() == color)


def test_a_referral_figure_holds_lines_controls_and_the_share():
    figure = referral_panel(
        [Line(mark(0), X, 0.8 + 0.2 * X)], [Control("random", X, np.array([0.8, 0.8, 0.8, 0.8, np.nan])), Control("oracle", X, np.ones(5))],
        label="accuracy", limits=(0.5, 1.0), referred=0.3,
    )  # fmt: skip
    [axes] = figure.axes
    assert curve(axes, mark(0).color).get_ydata().tolist() == (0.8 + 0.2 * X).tolist()
    assert axes.lines[0].get_xdata() == [0.3, 0.3]
    assert (axes.get_ylim(), axes.get_ylabel()) == ((0.5, 1.0), "accuracy")
    heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert heights["random"] == pytest.approx(0.6)  # 0.8 within 0.5 … 1, its last known value
    assert heights["oracle"] == pytest.approx(0.98)


def test_labels_of_controls_that_end_together_stand_apart():
    ends = [Control(name, X, np.full(5, 0.75)) for name in ("a", "b", "c")]
    figure = referral_panel([], ends, label="", limits=(0.5, 1.0), referred=0.5)
    heights = sorted(text.get_position()[1] for text in figure.axes[0].texts)
    assert np.diff(heights).tolist() == pytest.approx([0.065, 0.065])


def test_the_standard_is_a_point_of_the_roc_figure():
    assert NHS == (0.2, 0.85)
    [axes] = roc_panel([Line(mark(1), X, X**0.5)]).axes
    points = [one for one in axes.lines if one.get_marker() == "o"]
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in points] == [NHS]
    assert curve(axes, mark(1).color).get_ydata()[2] == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("graded", [True, False])
def test_a_histogram_counts_correct_and_incorrect_by_grade(graded):
    uncertainty, correct = np.linspace(0.05, 0.65, 10), np.arange(10) % 3 > 0
    grade = np.repeat(np.arange(5), 2).astype(np.int8) if graded else None
    figure = histogram_panel(
        [Uncertainties("In-domain", uncertainty, correct, grade)], limits=(0.0, 0.7), label="entropy"
    )
    counts = [[int(text.get_text()) for text in axes.texts] for axes in figure.axes]
    if graded:
        assert counts == [
            [int(correct[k : k + 2].sum()), int((~correct[k : k + 2]).sum())] for k in range(0, 10, 2)
        ]
    else:
        assert counts == [[6, 4]]


def test_reliability_shows_the_observed_shares_and_the_histogram_as_shares():
    counts = np.zeros(20)
    counts[3], counts[7] = 30, 10
    figure = reliability_panel([(GOOD, np.array([0.2, 0.6]), np.array([0.3, 0.5]), np.array([0.1, 0.4]), np.array([0.4, 0.7]))], [counts])  # fmt: skip
    [axes] = figure.axes
    assert curve(axes, GOOD).get_ydata().tolist() == [0.3, 0.5]
    heights = axes.patches[0].get_data().values
    assert heights[[3, 7]].tolist() == pytest.approx([0.25 * 0.75, 0.25 * 0.25])
