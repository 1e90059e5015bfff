import re

import numpy as np
import pytest

from retinabench.metrics.actions import FrozenRule
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring import watch as monitor
from retinabench.reports.monitoring import headline, monitor_tables, page
from support.browsers import check_page
from support.follow_ups import follow_up
from support.reading_pages import printed, without_script

pytestmark = pytest.mark.usefixtures("legible")


GOALS = Goal("selective_risk", 0.08), Goal("sensitivity", 0.8)
PAGE_GOALS = FrozenRule("<b>own</b>", 0.2, goals=GOALS, most_images=2)


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
    lines = printed(monitor_tables(watched[name])).splitlines()
    assert " ".join(lines[:3]).startswith(text[:60])
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in "".join(lines)


@pytest.fixture(scope="module")
def text(watched):
    return page(watched["broken"])


def test_the_page_is_whole_escaped_and_states_the_limits_of_the_alarms(text):
    assert "<b>own</b>" not in text
    assert "<script" not in without_script(text)
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert text.count('role="img"') == 2 + 2 + len(PAGE_GOALS.goals)
    assert "ever raised is at most 5 %, however often one looks" in " ".join(text.split())
    assert "gave no alarm in 94 to 96 %" in " ".join(text.split())


def test_the_page_fits_a_phone_and_is_accessible(text, browser, tmp_path):
    (tmp_path / "page.html").write_text(text)
    check_page(browser, tmp_path / "page.html")
