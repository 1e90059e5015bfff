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

from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring import Certified, Evidence, monitor
from retinabench.metrics.proportions import Interval
from retinabench.reports.monitoring import (
    LATEST,
    LEAST,
    evidence_panel,
    evidence_table,
    goal_text,
    headline,
    monitor_tables,
    page,
    window_panel,
    windows_table,
)
from retinabench.reports.toolkit.figures import BAD, MUTED, mark
from support.browsers import check_phone, faults
from support.follow_ups import follow_up
from support.reading_pages import without_script

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


GOALS = Certified(0.2, 0.5, "max_probability", (Goal("selective_risk", 0.08),), "image", 2)


@pytest.fixture(scope="module")
def found():
    return monitor(follow_up(np.random.default_rng(0), 120), GOALS)


def with_wealth(found, wealth, alarm=None):
    path = np.array([0.0, math.log(wealth)])
    one = replace(found.risks[0], log_wealth=path, alarm=alarm, needed=20.0, patients=1234)
    return replace(found, risks=(one,))


@pytest.mark.parametrize(
    ("wealth", "text"), [(1e5, "> 10,000"), (1e-4, "< 0.01"), (3.0, 3.0), (9999.0, 9999.0)]
)
def test_evidence_is_a_number_within_its_limits(found, wealth, text):
    row = evidence_table(with_wealth(found, wealth)).blocks[0].rows[0]
    patients, _, evidence, needed, alarm = row.cells
    shown = evidence.content if isinstance(text, str) else evidence.content.value
    assert shown == (text if isinstance(text, str) else pytest.approx(text))
    assert (patients.content.value, needed.content.value, alarm.content) == (1234, 20, "–")
    assert row.label == "error of the retained ≤ 0.08"


def test_the_day_of_an_alarm_is_marked(found):
    row = evidence_table(with_wealth(found, 30.0, np.datetime64("2026-03-01"))).blocks[0].rows[0]
    assert (row.cells[-1].content, row.cells[-1].emphasis) == ("2026-03-01", "bad")


def test_one_goal_has_no_row_of_all_goals_together(found):
    assert [row.label for row in evidence_table(found).blocks[0].rows] == [
        "error of the retained ≤ 0.08",
        "drift",
    ]
    two = replace(found, risks=(*found.risks, replace(found.risks[0])))
    assert "all goals together" in [row.label for row in evidence_table(two).blocks[0].rows]


def test_the_latest_windows_are_narrower_than_all(found):
    window = replace(found.windows[0], referred=Interval(math.nan))
    many = replace(found, windows=tuple(replace(window, start=f"2026-0{k}-01") for k in range(1, 9)))
    latest, whole = windows_table(many, 6), windows_table(many)
    assert [row.label for row in latest.blocks[0].rows] == [f"2026-0{k}-01" for k in range(3, 9)]
    assert latest.caption.endswith("the latest 6 of 8")
    assert len(whole.blocks[0].rows) == 8
    assert whole.width == latest.width + 1
    assert whole.blocks[0].rows[0].cells[2].content == "–"  # no share of referred images is known


def test_headline_tables_and_findings_stand_in_this_order():
    found = monitor(follow_up(np.random.default_rng(0), 200), GOALS)
    out = io.StringIO()
    Console(file=out, width=80).print(monitor_tables(found))
    text = out.getvalue()
    places = [
        text.index(part)
        for part in ("No alarm", "Evidence so far", f"By {found.unit}", "Certified risks.", "Drift.")
    ]
    assert places == sorted(places)
    assert "What no alarm can see." in text
    shown = [one.start for one in found.windows if one.start in text]
    assert len(shown) == min(LATEST, len(found.windows))
    assert shown[-1] == found.windows[-1].start


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (Goal("selective_risk", 0.05), "error of the retained ≤ 0.05"),
        (Goal("sensitivity", 0.8), "sensitivity with expert ≥ 0.8"),
        ("drift", "drift"),
        ("all goals together", "all goals together"),
    ],
)
def test_a_goal_is_named_as_in_the_tables_with_its_bound(goal, text):
    assert goal_text(goal) == text


PAGE_GOALS = Certified(
    0.2, 0.5, "<b>own</b>", (Goal("selective_risk", 0.08), Goal("sensitivity", 0.8)), "image", 2
)


@pytest.fixture(scope="module")
def watched():
    """A follow-up that breaks its certificate, one that drifts, one without labels, and one that holds."""
    rng = np.random.default_rng(0)
    reference = follow_up(rng, 300, name="v")
    return {
        "broken": monitor(
            follow_up(rng, 900, sure_errors=0.2, change=120, unlabelled_from=330),
            PAGE_GOALS,
            reference=reference,
        ),
        "drift": monitor(
            follow_up(rng, 500, washed_out=0.3, change=100, unlabelled_from=0),
            PAGE_GOALS,
            reference=reference,
        ),
        "unlabelled": monitor(follow_up(rng, 200, unlabelled_from=0), PAGE_GOALS),
        "holds": monitor(follow_up(rng, 300), PAGE_GOALS),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken", "Alarm: the labels refute the certificate (error of the retained ≤ 0.08"),
        ("drift", "Alarm: the images have drifted since 2026-"),
        ("unlabelled", "No alarm, but no label to judge the certificate by"),
        ("holds", "No alarm: neither the labels nor a drift speak against the certificate"),
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
    check_phone(browser, tmp_path / "page.html")
    assert faults(browser, tmp_path / "page.html", contrast=False) == []


def test_the_same_follow_up_gives_the_same_page(watched):
    text = page(watched["unlabelled"])
    assert page(watched["unlabelled"]) == text
    assert "earlier patients of this follow-up" in " ".join(text.split())
