"""The page and the terminal table of a monitor: what they say, and that nothing from a file is taken as markup."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.monitoring.monitor import monitor
from retinabench.reports.monitoring.page import page
from retinabench.reports.monitoring.tables import headline, monitor_tables
from support.browsers import check_phone, faults
from support.follow_ups import follow_up
from support.reading_pages import without_script

GOALS = Certified(
    0.2, 0.5, "<b>own</b>", (Goal("selective_risk", 0.08), Goal("sensitivity", 0.8)), "image", 2
)


@pytest.fixture(scope="module")
def watched():
    """A follow-up that breaks its certificate, one that drifts, one without labels, and one that holds."""
    rng = np.random.default_rng(0)
    reference = follow_up(rng, 300, name="v")
    return {
        "broken": monitor(
            follow_up(rng, 900, sure_errors=0.2, change=120, unlabelled_from=330), GOALS, reference=reference
        ),
        "drift": monitor(
            follow_up(rng, 500, washed_out=0.3, change=100, unlabelled_from=0), GOALS, reference=reference
        ),
        "unlabelled": monitor(follow_up(rng, 200, unlabelled_from=0), GOALS),
        "holds": monitor(follow_up(rng, 300), GOALS),
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
    assert text.count('role="img"') == 2 + 2 + len(GOALS.goals)
    assert "Before the labels arrive" in text
    assert "ever raised is at most 5 %, however often one looks" in " ".join(text.split())
    assert "gave no alarm in 94 to 96 %" in " ".join(text.split())


def test_the_page_fits_a_phone_and_is_accessible(watched, browser, tmp_path):
    (tmp_path / "page.html").write_text(page(watched["broken"]))
    check_phone(browser, tmp_path / "page.html")
    assert faults(browser, tmp_path / "page.html", contrast=False) == []


def test_the_same_follow_up_gives_the_same_page(watched):
    text = page(watched["unlabelled"])
    assert page(watched["unlabelled"]) == text
    assert (
        "Before the labels arrive" not in text
    )  # without validation images there is nothing to estimate from
    assert "earlier patients of this follow-up" in " ".join(text.split())
