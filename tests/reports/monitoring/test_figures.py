"""The charts of a monitor hold the paths, the alarm and the goal that they are given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.dates import date2num

from retinabench.metrics.monitoring.result import Evidence
from retinabench.metrics.proportions import Interval
from retinabench.reports.monitoring.figures import LEAST, evidence_panel, window_panel
from retinabench.reports.toolkit.style import BAD, MUTED, mark

DAYS = np.datetime64("2026-01-01") + np.arange(4)


def path(*wealth, alarm=None):
    with np.errstate(divide="ignore"):
        return Evidence("risk", DAYS[: len(wealth)], np.log(wealth), 20.0, alarm, 9)


def test_evidence_is_drawn_with_its_alarm_within_the_range_that_can_be_read():
    figure = evidence_panel([(mark(0), path(1.0, 5.0, 25.0, 0.0, alarm=DAYS[2]))], 20.0)
    [axes] = figure.axes
    drawn, alarm, needed = axes.lines
    assert np.allclose(drawn.get_ydata(), [1, 5, 25, LEAST])
    assert alarm.get_xdata() == [date2num(DAYS[2])] * 2
    assert needed.get_ydata() == [20.0, 20.0]
    assert axes.get_yscale() == "log"
    assert axes.get_ylim() == pytest.approx((LEAST / 3, 125.0))
    assert [text.get_text() for text in axes.texts] == ["alarm at 20"]


def test_a_path_without_alarm_has_no_vertical_line():
    [axes] = evidence_panel([(mark(0), path(1.0, 2.0))], 20.0).axes
    assert len(axes.lines) == 2


def test_windows_without_a_value_are_left_out_and_keep_their_place():
    values = [Interval(0.1, 0.05, 0.2), Interval(math.nan), Interval(0.3), Interval(math.nan)]
    [axes] = window_panel(DAYS, values, "error", goal=0.08).axes
    drawn, goal = axes.lines
    assert np.asarray(drawn.get_ydata()).tolist() == [0.1, 0.3]
    assert (goal.get_ydata()[0], goal.get_color()) == (0.08, BAD)
    [bars] = axes.collections
    assert len(bars.get_segments()) == 1  # one value has an interval
    assert axes.get_xlim()[1] > date2num(DAYS[-1])


def test_the_line_at_zero_is_no_goal():
    [axes] = window_panel(DAYS, [Interval(0.1, 0, 1)] * 4, "gap", goal=0.0).axes
    assert axes.lines[1].get_color() == MUTED
