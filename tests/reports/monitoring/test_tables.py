"""The tables of a monitor, from evidence that is set by hand, and what it prints: the headline, the latest windows, every finding."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.monitoring.monitor import monitor
from retinabench.metrics.proportions import Interval
from retinabench.reports.monitoring.tables import (
    LATEST,
    evidence_table,
    expected_table,
    goal_text,
    monitor_tables,
    windows_table,
)
from support.follow_ups import follow_up

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


def test_without_estimates_there_is_no_table_of_them(found):
    assert expected_table(replace(found, expected=None)) is None


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
