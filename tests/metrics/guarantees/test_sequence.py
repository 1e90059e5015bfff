"""The betting test: its level by brute force over all outcomes and by simulation, and what it is blind to."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal, ReferralCases, weights
from retinabench.metrics.guarantees.sequence import SHARE, TARGET, certified, evidence, orders


@pytest.mark.parametrize(("goal", "patients"), [(0.3, 6), (0.5, 7), (0.15, 8)])
def test_the_mean_evidence_is_at_most_one_over_all_outcomes(goal, patients):
    """One image per patient, wrong with probability goal: the expectation over all 2^P outcomes is computed exactly."""
    wrong = np.array(list(product((0.0, 1.0), repeat=patients)))
    chance = goal ** wrong.sum(axis=1) * (1 - goal) ** (patients - wrong.sum(axis=1))
    found = evidence(wrong - goal, np.full_like(wrong, goal), 1 - goal, 0.1, orders(patients))
    assert chance @ found <= 1 + 1e-9  # less by what the capped wealth gives up
    assert chance @ (found >= 1 / 0.1) <= 0.1


def test_the_mean_is_at_most_one_for_three_outcomes():
    """X in {-0.5, 0, 1} with mean 0 or above, all 3^6 outcomes."""
    for chances in ([0.4, 0.4, 0.2], [0.5, 0.25, 0.25], [0.1, 0.5, 0.4]):
        x = np.array(list(product((-0.5, 0.0, 1.0), repeat=6)))
        chance = np.prod(np.array(chances)[(2 * np.array(x) > 0).astype(int) + (x >= 0)], axis=1)
        assert chance.sum() == pytest.approx(1)
        found = evidence(x, np.full_like(x, 0.3), 1.0, 0.2, orders(6))
        assert chance @ found <= 1 + 1e-9


def test_without_errors_it_is_the_binomial_test():
    """No error in n patients: (1 - goal)^n <= delta, up to the target of 1.25 / delta."""
    goal, delta = 0.05, 0.1
    for n in (40, 50, 60, 80):
        found = evidence(np.full((1, n), -goal), np.full((1, n), goal), 1 - goal, delta, orders(n))
        assert found[0] == pytest.approx(min((1 - goal) ** -n, TARGET / delta), rel=0.05)


def test_patients_without_an_image_that_counts_change_neither_level_nor_power():
    """Two eyes of 60 diseased among 300 patients, missed together; SE of a share of 300 studies at 10 % is 1.7 points, at 50 % 2.9."""
    rng = np.random.default_rng(4)
    diseased, order = np.arange(300) % 5 == 0, orders(300)

    def rejects(risk):
        both, one = rng.random((300, 60, 1)) < risk, rng.random((300, 60, 2)) < risk
        missed = np.where(rng.random((300, 60, 1)) < 0.6, both, one)
        sums = np.zeros((300, 300))
        sums[:, diseased] = missed.sum(axis=2) - 2 * 0.1
        found = evidence(sums, np.broadcast_to(0.2 * diseased, sums.shape), 2 * 0.9, 0.1, order)
        of_one_eye = stats.binom.cdf(missed[:, :, 0].sum(axis=1), 60, 0.1) <= 0.1
        return np.mean(found >= 1 / 0.1), np.mean(of_one_eye)

    assert rejects(0.1)[0] <= 0.1 + 0.05
    ours, binomial = rejects(0.03)
    assert ours >= binomial - 0.02


def test_one_image_per_patient_is_tested_by_the_binomial_distribution():
    rng = np.random.default_rng(6)
    wrong, u = rng.random(500) < 0.04, rng.random(500)
    cases = ReferralCases(wrong, np.zeros(500, bool), u, np.arange(500), np.ones(500))
    one = certified(cases, Goal("selective_risk", 0.1), 0.1, 1, SHARE)
    for step in (one.first, one.last):
        kept = u <= step.threshold
        oracle = stats.binomtest(int(wrong[kept].sum()), int(kept.sum()), 0.1, "less")
        assert step.p_value == pytest.approx(oracle.pvalue)
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
