"""Goals as a user states them."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.goals import Goal, as_goals
from retinabench.metrics.guarantees.risks import TARGETS
from support.six_images import cases


def test_goals_are_read_and_wrong_ones_refused():
    assert as_goals("accuracy", 0.9, ()) == (Goal("accuracy", 0.9),)
    assert as_goals("npv", 0.5, ["0.99", "workload=.5"]) == (Goal("npv", 0.99), Goal("referral_rate", 0.5))
    assert Goal("sensitivity", 0.9).max_risk == pytest.approx(0.1)
    with pytest.raises(InputError, match="two goals"):
        as_goals("npv", 0.5, ["npv=.9", "npv=.8"])
    with pytest.raises(InputError, match="Did you mean 'accuracy'"):
        Goal("acuracy", 0.9)
    with pytest.raises(InputError, match="between 0 and 1"):
        Goal.parse("sensitivity=90")
    with pytest.raises(InputError, match="unknown goal"):
        Goal.parse("sensitivity=high")
    with pytest.raises(InputError, match="grade"):
        TARGETS["missed_severe"].estimate(cases(grade=None), 0.5)
    with pytest.raises(InputError, match="unknown estimand"):
        cases("eye")
