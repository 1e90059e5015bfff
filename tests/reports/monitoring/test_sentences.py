"""Goals as a reader sees them."""

from __future__ import annotations

import pytest

from retinabench.metrics.guarantees.goals import Goal
from retinabench.reports.monitoring.sentences import goal_text


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
