"""The charts of a monitor hold the paths, the alarm and the goal that they are given."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.dates import date2num
from rich.console import Console

from retinabench.metrics.actions import FrozenRule
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring import Evidence
from retinabench.metrics.monitoring import watch as monitor
from retinabench.metrics.proportions import Interval
from retinabench.reports.monitoring import (
    LEAST,
    evidence_panel,
    headline,
    monitor_tables,
    page,
    window_panel,
    windows_table,
)
from retinabench.reports.toolkit.figures import BAD, mark
from support.browsers import check_page
from support.follow_ups import follow_up
from support.reading_pages import without_script

pytestmark = pytest.mark.usefixtures("legible")

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


def test_windows_without_a_value_are_left_out_and_keep_their_place():
    values = [Interval(0.1, 0.05, 0.2), Interval(math.nan), Interval(0.3), Interval(math.nan)]
    [axes] = window_panel(DAYS, values, "error", goal=0.08).axes
    drawn, goal = axes.lines
    assert np.asarray(drawn.get_ydata()).tolist() == [0.1, 0.3]
    assert (goal.get_ydata()[0], goal.get_color()) == (0.08, BAD)
    [bars] = axes.collections
    assert len(bars.get_segments()) == 1  # one value has an interval
    assert axes.get_xlim()[1] > date2num(DAYS[-1])


GOALS = FrozenRule("max_probability", 0.2, goals=(Goal("selective_risk", 0.08),), most_images=2)


@pytest.fixture(scope="module")
def found():
    return monitor(follow_up(np.random.default_rng(0), 120), GOALS)


def test_the_latest_windows_are_narrower_than_all(found):
    window = replace(found.windows[0], referred=Interval(math.nan))
    many = replace(found, windows=tuple(replace(window, start=f"2026-0{k}-01") for k in range(1, 9)))
    latest, whole = windows_table(many, 6), windows_table(many)
    assert [row.label for row in latest.blocks[0].rows] == [f"2026-0{k}-01" for k in range(3, 9)]
    assert latest.caption.endswith("the latest 6 of 8")
    assert len(whole.blocks[0].rows) == 8
    assert whole.width == latest.width + 1
    assert whole.blocks[0].rows[0].cells[2].content == "–"  # no share of referred images is known


PAGE_GOALS = FrozenRule(
    "<b>own</b>", 0.2, goals=(Goal("selective_risk", 0.08), Goal("sensitivity", 0.8)), most_images=2
)


@pytest.fixture(scope="module")
def watched():
    """A follow-up that breaks its certificate, one that drifts, one without labels, and one that holds."""
    rng = np.random.default_rng(0)
    reference = follow_up(rng, 300, name="v")
    return {
        "broken": monitor(
            follow_up(rng, 900, sure_errors=0.2, change=120, unlabelled_from=330), PAGE_GOALS, reference=reference
        ),
        "drift": monitor(
            follow_up(rng, 500, washed_out=0.3, change=100, unlabelled_from=0), PAGE_GOALS, reference=reference
        ),
        "unlabelled": monitor(follow_up(rng, 200, unlabelled_from=0), PAGE_GOALS),
        "holds": monitor(follow_up(rng, 300), PAGE_GOALS),
        "misses": monitor(follow_up(np.random.default_rng(1), 300, sure_errors=0.7, change=335), PAGE_GOALS),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken", "Alarm: the labels refute the certificate (error of the retained ≤ 0.08"),
        ("drift", "Alarm: the images have drifted since 2026-"),
        ("unlabelled", "No alarm, but no label to judge the certificate by"),
        ("holds", "No alarm: neither the labels nor drift speak against the certificate (error of the retained ≤"),
        ("misses", "No alarm yet, but the latest labels miss a goal: error of the retained ≤ 0.08: 0."),
    ],
)
def test_the_first_line_says_what_matters(watched, name, text):
    assert headline(watched[name]).startswith(text)
    shown = io.StringIO()
    Console(file=shown, width=80).print(monitor_tables(watched[name]))
    lines = shown.getvalue().splitlines()
    assert " ".join(lines[:3]).startswith(text[:60])
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in shown.getvalue()


def test_the_page_is_whole_escaped_and_states_the_limits_of_the_alarms(watched):
    text = page(watched["broken"])
    assert "<b>own</b>" not in text
    assert "<script" not in without_script(text)
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert text.count('role="img"') == 2 + 2 + len(PAGE_GOALS.goals)
    assert "ever raised is at most 5 %, however often one looks" in " ".join(text.split())
    assert "gave no alarm in 94 to 96 %" in " ".join(text.split())


def test_the_page_fits_a_phone_and_is_accessible(watched, browser, tmp_path):
    (tmp_path / "page.html").write_text(page(watched["broken"]))
    check_page(browser, tmp_path / "page.html")
