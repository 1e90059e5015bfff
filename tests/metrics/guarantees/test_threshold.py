"""The choice of a threshold by brute force, and what a frozen one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinabench.metrics.guarantees.threshold import choose_threshold, realised

CASES = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 6)), min_size=1, max_size=30)


@given(
    CASES, st.sampled_from(["accuracy", "selective_risk", "sensitivity", "referral_rate"]), st.floats(0, 1)
)
@settings(deadline=None)
def test_the_choice_by_brute_force(cases, target, goal):
    y, said, u = (np.array(column) for column in zip(*cases, strict=True))
    best = None
    for t in (-np.inf, *np.unique(u)):
        kept = u <= t
        if target == "referral_rate":
            value, good = 1 - kept.sum() / len(u), 1 - kept.sum() / len(u) <= goal
        elif target == "sensitivity":
            value = (y & (said | ~kept)).sum() / y.sum() if y.any() else np.nan
            good = value >= goal
        elif not kept.any():
            continue
        elif target == "accuracy":
            value = (y == said)[kept].sum() / kept.sum()
            good = value >= goal
        else:
            value = (y != said)[kept].sum() / kept.sum()
            good = value <= goal
        if good and (best is None or target != "referral_rate"):
            best = (t, value)
    choice = choose_threshold(y, said, u, target, goal)
    assert choice.threshold == (None if best is None else best[0])
    if best is None:
        assert choice.why
    else:
        assert choice.value == pytest.approx(best[1], abs=1e-15)
        assert choice.referral_rate == pytest.approx(np.mean(u > choice.threshold), abs=1e-15)


def test_everything_referred_is_undefined_and_not_zero():
    found = realised([0, 1], [0, 1], [1.0, 2.0], 0.5, bootstrap=10).to_dict()
    assert found["referral_rate"]["value"] == 1
    assert found["selective_risk"]["value"] is None
    assert found["readings"]["expert"]["sensitivity"]["value"] == 1
