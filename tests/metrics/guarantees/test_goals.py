import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.goals import TARGETS, Goal, as_goals, ratio_interval
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


# Retained at 0.5: a (right, negative), b (missed), c (found), d (false alarm), e (missed, severe); f is referred.
PER_IMAGE = {
    "selective_risk": 3 / 5, "accuracy": 2 / 5, "sensitivity": 1 / 3, "missed_referable": 2 / 3, "severe_sensitivity": 1 / 2,
    "missed_severe": 1 / 2, "specificity": 2 / 3, "npv": 1 / 3, "ppv": 1 / 2, "referral_rate": 1 / 6,
}  # fmt: skip
# Weights: a, b, c 1/3; d, e 1/2; f 1.
PER_PATIENT = {
    "selective_risk": (4 / 3) / 2, "accuracy": 1 / 3, "sensitivity": 1 - (1 / 3 + 1 / 2) / (2 / 3 + 1 / 2),
    "missed_severe": (1 / 2) / (1 / 3 + 1 / 2), "npv": 1 - (5 / 6) / (2 / 3 + 1 / 2), "referral_rate": 1 / 3,
}  # fmt: skip


@pytest.mark.parametrize(("per", "values"), [("image", PER_IMAGE), ("patient-image", PER_PATIENT)])
def test_targets_by_hand(per, values):
    for name, value in values.items():
        found = TARGETS[name].estimate(cases(per), 0.5)
        assert found.value == pytest.approx(value), name
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_an_empty_denominator_is_undefined_and_no_interval_collapses():
    assert np.isnan(TARGETS["selective_risk"].estimate(cases(), 0.0).value)
    perfect = ratio_interval(np.zeros(6), np.ones(6), np.arange(6))
    assert perfect.high == pytest.approx(1 - 0.025 ** (1 / 6))
    one = ratio_interval(np.array([0.0, 1.0]), np.ones(2), np.zeros(2, int))
    assert (one.low, one.high) == (0, 1)
