"""Certificates: their level by simulation with dependent images, invariances, every target, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.risks import Cases, Goal, weights
from retinabench.metrics.guarantees.threshold import choose_threshold

TARGETS = [
    Goal("selective_risk", 0.1), Goal("accuracy", 0.9), Goal("sensitivity", 0.8), Goal("missed_severe", 0.25),
    Goal("specificity", 0.85), Goal("npv", 0.85), Goal("ppv", 0.8), Goal("referral_rate", 0.6),
]  # fmt: skip


def draw(rng, patients, per="image"):
    """Images that depend on each other, more of them (4) of diseased patients than of healthy ones (1), with ties."""
    disease = rng.normal(-0.8, 1.2, patients)
    patient = np.repeat(np.arange(patients), np.where(disease > 0, 4, 1))
    severity = disease[patient] + rng.normal(0, 0.6, len(patient))
    label = rng.random(len(patient)) < 1 / (1 + np.exp(-2 * severity))
    prob = 1 / (1 + np.exp(-1.5 * severity - rng.normal(0, 0.6, len(patient))))
    uncertainty = np.round(0.5 - np.abs(prob - 0.5), 2)
    return Cases(label, prob > 0.5, uncertainty, patient, weights(patient, per), label & (severity > 0.5))


@pytest.fixture(scope="module", params=["image", "patient-image"])
def population(request):
    """The estimand, and a function goal, threshold -> the true risk, from 100,000 patients."""
    cases = draw(np.random.default_rng(99), 100_000, request.param)

    def risk(goal, threshold):
        num, den = goal.spec.sums(cases, threshold)
        return num.sum() / den.sum()

    return request.param, risk


def test_goals_are_broken_at_most_at_their_level(population):
    """12 studies of 200 patients with delta 10 %: the SE of a share of 10 % is 8.7 %; `benchmarks/guarantees.py` has more."""
    per, risk = population
    broken = dict.fromkeys(TARGETS, 0)
    plain = 0
    for study in range(12):
        cases = draw(np.random.default_rng([7, study]), 200, per)
        plain += risk(TARGETS[0], choose_threshold(cases, TARGETS[:1]).threshold) > 0.1
        for goal in TARGETS:
            found = certify(cases, [goal], 0.1)
            broken[goal] += found.granted and risk(goal, found.threshold) > goal.max_risk
    assert max(broken.values()) / 12 <= 0.1 + 3 * 0.087
    assert sum(broken.values()) / (12 * len(TARGETS)) <= 0.1
    assert plain / 12 > 0.2  # the best of many estimates misses its goal in every second to third study


def test_neither_rows_nor_names_change_a_certificate():
    cases = draw(np.random.default_rng(3), 600)
    found = certify(cases, TARGETS[:1], 0.1)
    rng = np.random.default_rng(4)
    rows, names = rng.permutation(len(cases)), rng.permutation(600)
    other = Cases(
        cases.label[rows], cases.positive[rows], cases.uncertainty[rows], names[cases.patient[rows]],
        cases.weight[rows], cases.severe[rows],
    )  # fmt: skip
    assert found.granted
    assert certify(other, TARGETS[:1], 0.1) == found


def test_two_eyes_of_each_patient_make_both_estimands_one():
    rng = np.random.default_rng(5)
    patient = np.repeat(np.arange(200), 2)
    label = rng.random(400) < 0.4
    wrong = rng.random(400) < 0.02
    uncertainty = rng.random(400).round(2)
    thresholds = [
        certify(Cases(label, label ^ wrong, uncertainty, patient, weights(patient, per)), [Goal("selective_risk", 0.1)]).threshold
        for per in ("image", "patient-image")
    ]  # fmt: skip
    assert thresholds[0] == thresholds[1]


def test_one_image_per_patient_is_tested_by_the_binomial_distribution():
    rng = np.random.default_rng(6)
    wrong, u = rng.random(500) < 0.04, rng.random(500)
    cases = Cases(wrong, np.zeros(500, bool), u, np.arange(500), np.ones(500))
    (one,) = certify(cases, [Goal("selective_risk", 0.1)], 0.1).goals
    for step in (one.first, one.last):
        kept = u <= step.threshold
        assert step.p_value == pytest.approx(
            stats.binomtest(int(wrong[kept].sum()), int(kept.sum()), 0.1, "less").pvalue
        )
        assert step.patients == kept.sum()
    assert one.delta == pytest.approx(0.09)


def test_several_goals_take_the_most_cautious_threshold():
    cases = draw(np.random.default_rng(8), 800)
    up = [Goal("selective_risk", 0.15), Goal("npv", 0.8)]
    single = [certify(cases, [goal], 0.1).threshold for goal in up]
    assert certify(cases, up, 0.1).threshold == min(single)
    both = certify(cases, [*up, Goal("workload", 0.7)], 0.1)
    assert both.granted
    assert sorted(one.delta for one in both.goals) == pytest.approx([0.045, 0.045, 0.05])
    assert not certify(cases, [*up, Goal("workload", 0.05)], 0.1).granted
    alone = certify(cases, [Goal("workload", 0.5)], 0.1).threshold
    assert np.mean(cases.uncertainty > alone) < 0.5


def test_refusals_say_why_and_how_many_patients_it_takes():
    cases = draw(np.random.default_rng(9), 300)
    wrong = Cases(cases.label, ~cases.label, cases.uncertainty, cases.patient, cases.weight)
    hopeless = certify(wrong, [Goal("selective_risk", 0.05)])
    assert not hopeless.granted
    assert "no lower than 0.05" in hopeless.why
    assert hopeless.needed is None
    right = Cases(cases.label, cases.label, cases.uncertainty, cases.patient, cases.weight)
    few = certify(right, [Goal("selective_risk", 0.001)])
    assert "too few" in few.why
    assert few.needed > 1000
    json.dumps(few.to_dict())
    with pytest.raises(InputError, match="no validation image counts"):
        certify(
            Cases(cases.label, cases.label & False, cases.uncertainty, cases.patient, cases.weight),
            [Goal("ppv", 0.9)],
        )
    with pytest.raises(InputError, match="selective_risk is 0"):
        certify(cases, [Goal("selective_risk", 0.0)])
    with pytest.raises(InputError, match="more than 2"):
        certify(cases, TARGETS[:1], most_images=2)


def test_a_model_without_errors_need_not_refer():
    label = np.tile([False, True], 200)
    cases = Cases(label, label, np.random.default_rng(0).random(400), np.arange(400), np.ones(400))
    assert certify(cases, [Goal("selective_risk", 0.02)]).threshold == np.inf
    assert certify(cases, [Goal("sensitivity", 0.95), Goal("npv", 0.95)]).threshold == np.inf


def test_sure_errors_are_diluted_where_every_patient_retains_an_image():
    """8 errors among the 50 patients of the first test, none elsewhere: the second sequence, at a tenth of delta, certifies."""
    wrong = np.arange(200) % 6 == 0
    wrong[45:] = False
    cases = Cases(wrong, np.zeros(200, bool), np.linspace(0, 1, 200), np.arange(200), np.ones(200))
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
        cases = Cases(label, label, u, patient, weights(patient, per))
        assert certify(cases, goals).granted
        assert certify(cases, goals, most_images=100).granted is granted
