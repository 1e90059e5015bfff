"""Refutation of a bound by labels: the binomial tests as a special case, and error rates with dependent eyes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.refutation import LabelledRisk, judge, ratio_p_values
from retinabench.metrics.proportions import clustered_proportion


def one_each(wrong, goal):
    """One image per patient, all of them counted."""
    return LabelledRisk(np.asarray(wrong, float), np.ones(len(wrong)), np.arange(len(wrong)), goal)


@pytest.mark.parametrize("errors", [0, 1, 9, 80])
def test_with_one_image_per_patient_the_tests_are_the_exact_binomial_ones(errors):
    p_values = ratio_p_values(one_each(np.arange(80) < errors, 0.06))
    expected = stats.binom.sf(errors - 1, 80, 0.06), stats.binom.cdf(errors, 80, 0.06)
    assert p_values == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_tests_reject_what_the_exact_interval_leaves_out():
    """The lower limit at 90 % is the goal that the one-sided test at 5 % just rejects."""
    rng = np.random.default_rng(2)
    patient = np.repeat(np.arange(150), 2)
    wrong, weight = np.repeat(rng.random(150) < 0.2, 2) ^ (rng.random(300) < 0.05), rng.uniform(0.3, 1, 300)
    interval = clustered_proportion(wrong, weight, patient, 0.9, exact=True)
    for end, which in ((interval.low, 0), (interval.high, 1)):
        risk = LabelledRisk(wrong * weight, weight, patient, end)
        assert ratio_p_values(risk)[which] == pytest.approx(0.05, abs=1e-9)


def test_nothing_that_counts_refutes_and_confirms_nothing():
    [found] = judge([LabelledRisk([0, 0], [0, 0], [0, 1], 0.05)])
    assert (found.verdict, found.patients) == ("not refuted", 0)
    assert found.to_dict()["risk"] is None
    assert judge([]) == []


@pytest.mark.parametrize(("num", "den", "goal"), [([2], [1], 0.1), ([-1], [1], 0.1), ([0], [1], 1.0)])
def test_impossible_sums_are_refused(num, den, goal):
    with pytest.raises(InputError):
        ratio_p_values(LabelledRisk(num, den, [0], goal))


def two_eyes(rng, patients, risk, goal):
    """Two eyes, wrong with a beta-distributed probability of the patient (correlation one half), 70 % retained."""
    p = np.repeat(rng.beta(risk, 1 - risk, patients), 2)
    retained = rng.random(2 * patients) < 0.7
    wrong = (rng.random(2 * patients) < p) & retained
    return LabelledRisk(wrong, retained, np.repeat(np.arange(patients), 2), goal)


@pytest.mark.parametrize("patients", [40, 300])
def test_at_the_goal_both_errors_are_at_most_the_level_and_power_is_not_empty(patients):
    """500 studies of two sets at the goal, seed 5: the standard error of a share of 5 % is 1 point."""
    rng = np.random.default_rng(5)
    broken = holds = 0
    for _ in range(500):
        verdicts = [one.verdict for one in judge([two_eyes(rng, patients, 0.1, 0.1) for _ in range(2)])]
        broken += "broken" in verdicts
        holds += "holds" in verdicts
    assert broken / 500 <= 0.05 + 3 * 0.01
    assert holds / 500 <= 0.05 + 3 * 0.01
    assert judge([two_eyes(rng, 400, 0.25, 0.1)])[0].verdict == "broken"
    assert judge([two_eyes(rng, 400, 0.02, 0.1)])[0].verdict == "holds"


def test_holm_counts_every_bound_that_is_tested():
    suspicious, plain = one_each(np.arange(300) < 24, 0.05), one_each(np.arange(300) < 15, 0.05)
    assert judge([suspicious])[0].verdict == "broken"
    family = judge([suspicious] + [plain] * 4)
    assert family[0].verdict == "not refuted"
    assert family[0].tests == 5
