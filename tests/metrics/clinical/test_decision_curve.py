"""Predictive values and net benefit, against Bayes, golden numbers and brute force."""

import numpy as np
import pytest
from scipy import stats

import retinabench as rb
from retinabench.metrics.clinical import screening_table
from retinabench.metrics.clinical.decision_curve import missed_disease, net_benefit, workload
from retinabench.metrics.clinical.screening_table import TwoByTwo, predictive_values, two_by_two
from retinabench.metrics.intervals import Interval, jeffreys
from support.shared_inputs import most_uncertain


def test_predictive_values_are_bayes():
    assert predictive_values(0.873737, 0.895330, 0.05) == pytest.approx((0.3052387, 0.9926326), abs=1e-6)
    table = TwoByTwo(173, 65, 25, 556)
    ppv, npv = predictive_values(table.sensitivity, table.specificity, 198 / 819)
    assert (ppv, npv) == pytest.approx((table.ppv, table.npv))
    assert np.isnan(predictive_values(0.9, 1.0, 0.0)[0])


@pytest.mark.parametrize(("sens", "spec"), [(0.87, 0.9), (0.98, 0.97)])
def test_predictive_value_intervals_cover(sens, spec):
    """400 tables of 100 and 300 independent cases (seed 4): the SE of a coverage of 95 % is 1.1 %."""
    rng = np.random.default_rng(4)
    truth = dict(zip(("ppv", "npv"), predictive_values(sens, spec, 0.1), strict=True))
    covered = dict.fromkeys(truth, 0)
    for tp, tn in zip(rng.binomial(100, sens, 400), rng.binomial(300, spec, 400), strict=True):
        rates = (Interval(k / n, *map(float, jeffreys(k, n))) for k, n in ((tp, 100), (tn, 300)))
        for name, one in screening_table.predictive_value_intervals(*rates, 0.1).items():
            assert one.low <= one.value <= one.high
            covered[name] += one.low <= truth[name] <= one.high
    assert min(covered.values()) / 400 > 0.92
    assert max(covered.values()) / 400 < 0.99


def test_golden_net_benefit(data, golden):
    want = golden["net_benefit_n400"]
    curve = net_benefit(data["y"], data["p"], [float(t) for t in want])
    for k, values in enumerate(want.values()):
        assert curve.model[k] == pytest.approx(values["model"], abs=1e-12)
        assert curve.treat_all[k] == pytest.approx(values["treat_all"], abs=1e-12)


def test_net_benefit_with_referral_by_brute_force(data):
    sent, thresholds = most_uncertain(data, 0.8), np.array([0.1, 0.35])
    curve = net_benefit(data["y"], data["p"], thresholds, referred=sent, reader=(0.9, 0.95), referral_cost=0.02)
    for k, t in enumerate(thresholds):
        table = two_by_two(data["y"][~sent], data["p"][~sent] >= t)
        tp = table.tp + 0.9 * data["y"][sent].sum()
        fp = table.fp + 0.05 * (1 - data["y"][sent]).sum()
        want = tp / 400 - fp / 400 * t / (1 - t) - 0.02 * sent.mean()
        assert curve.model[k] == pytest.approx(want, abs=1e-14)


def test_net_benefit_intervals_cover_and_never_collapse():
    """200 studies of 150 patients with two correlated eyes (seed 5): the SE of a coverage of 95 % is 1.5 %."""
    rng = np.random.default_rng(5)
    sens, alarm = stats.norm.sf(-0.8), stats.norm.sf(1.2)
    truth = 0.2 * sens - 0.8 * alarm / 9
    over_all = truth - (0.2 - 0.8 / 9)
    covered = np.zeros(2)
    for _ in range(200):
        ill = np.repeat(rng.random(150) < 0.2, 2)
        score = 2 * ill + np.sqrt(0.5) * (np.repeat(rng.normal(size=150), 2) + rng.normal(size=300))
        prob = np.where(score > 1.2, 0.1, 0.05)  # the only threshold is 0.1
        found = net_benefit(ill, prob, [0.1], cluster=np.repeat(np.arange(150), 2))
        covered += [found.low[0] <= truth <= found.high[0], found.over_all_low[0] <= over_all <= found.over_all_high[0]]
    assert (covered / 200 > 0.905).all()
    none = net_benefit([0, 1, 0, 1], [0.1] * 4, [0.5], cluster=list("aabc"))
    assert none.model[0] == 0
    assert none.low[0] < 0 < none.high[0]


def test_net_benefit_of_referral_with_intervals(data):
    sent = most_uncertain(data, 0.8)
    arguments = {"referred": sent, "reader": (0.9, 0.95), "referral_cost": 0.02}
    curve = net_benefit(data["y"], data["p"], [0.1, 0.3], cluster=data["patient"], **arguments)
    assert curve.model == pytest.approx(net_benefit(data["y"], data["p"], [0.1, 0.3], **arguments).model)
    dear = net_benefit(data["y"], data["p"], [0.1], cluster=data["patient"], **(arguments | {"referral_cost": 0.5}))
    assert dear.low[0] < dear.model[0] < dear.high[0]
    assert dear.over_all_low[0] < dear.model[0] - dear.treat_all[0] < dear.over_all_high[0]
    assert (curve.low < curve.model).all()
    assert (curve.model < curve.high).all()
    gain = (curve.over_all_low + curve.over_all_high) / 2
    assert gain == pytest.approx(curve.model - curve.treat_all, abs=0.02)


def test_missed_images_and_patients_by_hand():
    part = rb.Predictions(
        list("abcdefgh"), [1, 1, 1, 1, 1, 0, 0, 0], [0.9, 0.2, 0.1, 0.3, 0.05, 0.8, 0.1, 0.4],
        grade=[2, 2, 4, 3, 2, 0, 1, 0], patient_id=["p", "p", "q", "r", "s", "t", "u", "u"],
    )  # fmt: skip
    said = part.prob > 0.5
    sent = np.array([0, 0, 0, 1, 0, 0, 0, 1], bool)
    found = missed_disease(part, said, sent, part.prob)
    assert [(one.image_id, one.grade) for one in found.images] == [("c", 4), ("e", 2), ("b", 2)]
    assert found.severe_missed == 1
    assert found.patients == ("q", "s")  # of p the other eye is found, of r the eye is referred
    assert found.referable_patients == 4
    assert found.referable.value == 3 / 5
    assert found.severe.value == 1 / 2
    assert found.alone.value == 4 / 5
    assert found.caught.value == 1 / 4
    assert found.errors_caught.value == 1 / 5  # f is a false alarm that is retained
    assert found.to_dict()["images"][0]["patient_id"] == "q"


def test_nothing_missed_has_an_upper_bound():
    n = 40
    part = rb.Predictions(np.arange(2 * n), [0, 1] * n, [0.1, 0.9] * n, patient_id=np.repeat(np.arange(n), 2))
    found = missed_disease(part, part.prob > 0.5, np.zeros(2 * n, bool), part.prob)
    assert found.images == ()
    assert found.severe is None
    assert found.referable.value == 0
    assert found.referable.high == pytest.approx(1 - 0.025 ** (1 / n))  # Clopper and Pearson, 0 of 40 patients
    assert np.isnan(found.caught.value)


def test_hours_by_hand():
    part = rb.Predictions(np.arange(8), [1, 1, 0, 0, 0, 0, 0, 1], [0.5] * 8, patient_id=list("aabbccdd"))
    found = workload(part, np.array([1, 1, 0, 0, 0, 0, 1, 0], bool), images_per_hour=30, weight=np.ones(8))
    assert found.images.value == 3 / 8
    assert found.patients.value == 2 / 4
    assert found.found.value == 2 / 3
    assert found.hours == 1000 * 2 * 3 / 8 / 30  # 1,000 patients have 2,000 images, of which 750 are read
    assert found.hours_reading_all == 2000 / 30
    assert found.images_per_expert_hour == 80
    assert found.patients_per_expert_hour == 40
