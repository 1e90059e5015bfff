"""The figures of an examination: what is drawn where."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.report import figures
from retinabench.reports.toolkit.figures import HUES
from retinabench.reports.toolkit.tables import Quantity

pytestmark = pytest.mark.usefixtures("legible")


def test_the_performance_panel_shows_every_count_and_the_band(found):
    one = found.examination["common"]
    bins, mean, sd = one.bins, one.gp.mean, one.gp.sd
    axes = figures.performance_panel(one).axes[0]
    dots = axes.lines[-1]
    seen = np.flatnonzero(bins)
    assert np.allclose(dots.get_xdata(), (seen + 0.5) / 100)
    assert dots.get_ydata().tolist() == bins[seen].tolist()
    assert [text.get_text() for text in axes.texts] == ["TN", "FP", "FN", "TP"]
    assert axes.get_ylim()[1] > max(bins.max(), (mean + 2 * sd).max())
    assert (mean - 2 * sd).min() < 0  # which no number of answers is
    assert min(axes.collections[0].get_paths()[0].vertices[:, 1]) == 0


def test_rates_are_dots_with_intervals_and_unknown_ones_intervals_alone(found):
    pairs = found.rates
    rows = [(one.concept, [figures.RateMark(HUES[0], rate.quantity) for rate in (one, other)]) for one, other in pairs]
    axes = figures.interval_panel(rows).axes[0]
    drawn = sum(rate.quantity.defined for pair in pairs for rate in pair)
    assert len(axes.lines) == 2 * len(rows) + drawn + 1  # intervals, dots, the line at one half
    assert [text.get_text() for text in axes.get_yticklabels()] == [name for name, _ in rows]
    unknown = figures.interval_panel([("x", [figures.RateMark(HUES[0], Quantity(float("nan"), 0.0, 1.0))] * 2)])
    assert len(unknown.axes[0].lines) == 3
