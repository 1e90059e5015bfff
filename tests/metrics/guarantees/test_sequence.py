"""The sequence of one goal: its tests by the binomial distribution, its two beginnings, and several images of a patient."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.risks import ReferralCases, weights
from retinabench.metrics.guarantees.sequence import SHARE, certified


def test_one_image_per_patient_is_tested_by_the_binomial_distribution():
    rng = np.random.default_rng(6)
    wrong, u = rng.random(500) < 0.04, rng.random(500)
    cases = ReferralCases(wrong, np.zeros(500, bool), u, np.arange(500), np.ones(500))
    one = certified(cases, Goal("selective_risk", 0.1), 0.1, 1, SHARE)
    for step in (one.first, one.last):
        kept = u <= step.threshold
        assert step.p_value == pytest.approx(
            stats.binomtest(int(wrong[kept].sum()), int(kept.sum()), 0.1, "less").pvalue
        )
        assert step.patients == kept.sum()
    assert one.delta == pytest.approx(0.09)


def test_a_model_without_errors_need_not_refer():
    label = np.tile([False, True], 200)
    cases = ReferralCases(label, label, np.random.default_rng(0).random(400), np.arange(400), np.ones(400))
    assert certify(cases, [Goal("selective_risk", 0.02)]).threshold == np.inf
    assert certify(cases, [Goal("sensitivity", 0.95), Goal("npv", 0.95)]).threshold == np.inf


def test_sure_errors_are_diluted_where_every_patient_retains_an_image():
    """8 errors among the 50 patients of the first test, none elsewhere: the second sequence, at a tenth of delta, certifies."""
    wrong = np.arange(200) % 6 == 0
    wrong[45:] = False
    cases = ReferralCases(wrong, np.zeros(200, bool), np.linspace(0, 1, 200), np.arange(200), np.ones(200))
    found = certify(cases, [Goal("selective_risk", 0.1)], 0.1)
    assert found.threshold == np.inf
    assert found.goals[0].delta == pytest.approx(0.01)
    assert found.begins == 1
    assert found.goals[0].last.p_value == pytest.approx(stats.binom.cdf(8, 200, 0.1))


def test_more_images_of_a_patient_make_a_certificate_per_image_more_cautious():
    patient = np.repeat(np.arange(150), 2)
    label = np.tile([False, True], 150)
    u = np.random.default_rng(0).random(300)
    goals = [Goal("selective_risk", 0.1)]
    for per, granted in (("image", False), ("patient-image", True)):
        cases = ReferralCases(label, label, u, patient, weights(patient, per))
        assert certify(cases, goals).granted
        assert certify(cases, goals, most_images=100).granted is granted
