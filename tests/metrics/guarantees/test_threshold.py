"""The choice of a threshold by brute force, and what a frozen one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.risks import ReferralCases
from retinabench.metrics.guarantees.threshold import ROUNDING, choose_threshold, realised

CASES = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6)), min_size=1, max_size=30)


def images(label, positive, uncertainty):
    n = len(label)
    return ReferralCases(
        np.asarray(label, bool),
        np.asarray(positive, bool),
        np.asarray(uncertainty, float),
        np.arange(n),
        np.ones(n),
    )


@given(
    CASES,
    st.sampled_from(["accuracy", "selective_risk", "sensitivity", "referral_rate", "npv"]),
    st.floats(0, 1),
)
@settings(deadline=None)
def test_the_choice_by_brute_force(cases, target, value):
    seen = images(*zip(*cases, strict=True))
    goal = Goal(target, value)
    best = None
    for t in (-np.inf, *np.unique(seen.uncertainty)):
        num, den = goal.spec.sums(seen, t)
        risk = num.sum() / den.sum() if den.sum() else np.nan
        if risk <= goal.max_risk + ROUNDING and (best is None or target != "referral_rate"):
            best = (t, 1 - risk if goal.spec.at_least else risk)
    choice = choose_threshold(seen, [goal])
    assert choice.threshold == (None if best is None else best[0])
    if best is None:
        assert choice.why
    else:
        assert choice.values[0] == pytest.approx(best[1], abs=1e-15)
        assert choice.referral_rate == pytest.approx(np.mean(seen.uncertainty > choice.threshold), abs=1e-15)


def test_several_goals_at_once():
    seen = images([0, 1, 1, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4])
    assert choose_threshold(seen, [Goal("accuracy", 1), Goal("sensitivity", 1)]).threshold == 0.2
    assert choose_threshold(seen, [Goal("accuracy", 0.5), Goal("workload", 0.5)]).threshold == 0.4
    assert (
        choose_threshold(seen, [Goal("accuracy", 1), Goal("workload", 0.25)]).why
        == "no threshold reaches all goals at once"
    )
    assert (
        "the best value is 1.000"
        in choose_threshold(images([1], [0], [0.1]), [Goal("selective_risk", 0.5)]).why
    )


def test_everything_referred_is_undefined_and_not_zero():
    found = realised(images([0, 1], [0, 1], [1.0, 2.0]), 0.5).to_dict()
    assert found["referral_rate"]["value"] == 1
    assert found["selective_risk"]["value"] is None
    assert found["readings"]["expert"]["sensitivity"]["value"] == 1
    assert found["missed_referable"] == {"images": 0, "of": 1}
