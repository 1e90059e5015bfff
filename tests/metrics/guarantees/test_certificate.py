import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees import sequence
from retinabench.metrics.guarantees.certificate import LabelledRisk, certify, judge, ratio_p_values
from retinabench.metrics.guarantees.goals import Goal, ReferralCases, weights
from retinabench.metrics.guarantees.sequence import SHARE, TARGET, certified, evidence, orders
from retinabench.metrics.intervals import clustered_proportion
from support.dependent_images import drawn


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


TARGETS = [
    Goal("selective_risk", 0.1), Goal("accuracy", 0.9), Goal("sensitivity", 0.8), Goal("missed_severe", 0.25),
    Goal("specificity", 0.85), Goal("npv", 0.85), Goal("ppv", 0.8), Goal("referral_rate", 0.6),
]  # fmt: skip


def draw(rng, patients, per="image"):
    """Images that depend on each other, with ties of the uncertainty."""
    label, prob, patient, severe = drawn(rng, patients)
    uncertainty = np.round(0.5 - np.abs(prob - 0.5), 2)
    return ReferralCases(label, prob > 0.5, uncertainty, patient, weights(patient, per), severe)


def just_broken(rng, goal, *, several):
    """60 patients whose images are alike, and a function threshold -> true risk: 2 % above the goal at every threshold, at those of
    one half and more where all images are the denominator, and below .4 for the share referred."""
    per = "patient-image" if several and goal in TARGETS[::2] else "image"
    images = rng.integers(1, 5, 60) if per == "patient-image" else np.full(60, 1 + several)
    patient = np.repeat(np.arange(60), images)
    label, wrong = rng.random(60) < 0.5, rng.random(60) < 1.02 * goal.max_risk
    rises = not goal.spec.den_retained and not goal.spec.of_referred
    uncertainty = np.where(wrong & rises, 0.5, 1) * rng.random(60)
    cases = ReferralCases(
        label[patient], (label ^ wrong)[patient], uncertainty[patient], patient, weights(patient, per), label[patient]
    )
    if goal.spec.of_referred:
        return cases, lambda threshold: 1 - threshold
    return cases, lambda threshold: 1.02 * goal.max_risk * (min(2 * threshold, 1) if rises else 1)


@pytest.mark.parametrize(("several", "studies"), [(False, 50), (True, 30)], ids=["one image", "several images"])
def test_goals_are_broken_at_most_at_their_level(several, studies, monkeypatch):
    """A goal that every certificate would just break, at 10 %, seeds [7, study]: of 8 goals the SE of a share of 10 % of 50 studies
    each is 1.5 points, of 30 1.9, of one goal 4.2 and 5.5; 3 of them are allowed. Some 6 % are broken, 19 % at thrice the level."""
    monkeypatch.setattr(sequence, "MOST_NEEDED", 0)  # how many patients a refusal takes plays no part
    monkeypatch.setattr(sequence, "STEPS", 12)  # nor how often the bets are revised
    monkeypatch.setattr(sequence, "ORDERS", (2, 2))
    broken = dict.fromkeys(TARGETS, 0)
    for study, goal in product(range(studies), TARGETS):
        cases, risk = just_broken(np.random.default_rng([7, study]), goal, several=several)
        found = certify(cases, [goal], 0.1)
        broken[goal] += found.granted and risk(found.threshold) > goal.max_risk
    error = np.sqrt(0.1 * 0.9 / studies)
    assert max(broken.values()) / studies <= 0.1 + 3 * error
    assert sum(broken.values()) / studies / 8 <= 0.1 + 3 * error / np.sqrt(8)
    assert sum(broken.values()) / studies / 8 >= 0.03  # so that the level is what is tested


def test_neither_rows_nor_names_change_a_certificate():
    cases = draw(np.random.default_rng(3), 600)
    found = certify(cases, TARGETS[:1], 0.1)
    rng = np.random.default_rng(4)
    rows, names = rng.permutation(len(cases)), rng.permutation(600)
    other = ReferralCases(
        cases.label[rows], cases.positive[rows], cases.uncertainty[rows], names[cases.patient[rows]],
        cases.weight[rows], cases.severe[rows],
    )  # fmt: skip
    assert found.granted
    assert certify(other, TARGETS[:1], 0.1) == found


def test_two_eyes_of_each_patient_make_both_estimands_one():
    rng = np.random.default_rng(5)
    patient, label, wrong = np.repeat(np.arange(200), 2), rng.random(400) < 0.4, rng.random(400) < 0.02
    images = label, label ^ wrong, rng.random(400).round(2), patient
    both = [ReferralCases(*images, weights(patient, per)) for per in ("image", "patient-image")]
    first, second = (certify(cases, [Goal("selective_risk", 0.1)]).threshold for cases in both)
    assert first == second


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
    wrong = ReferralCases(cases.label, ~cases.label, cases.uncertainty, cases.patient, cases.weight)
    hopeless = certify(wrong, [Goal("selective_risk", 0.05)])
    assert not hopeless.granted
    assert "no lower than 0.05" in hopeless.why
    assert hopeless.needed is None
    right = ReferralCases(cases.label, cases.label, cases.uncertainty, cases.patient, cases.weight)
    few = certify(right, [Goal("selective_risk", 0.001)])
    assert "too few" in few.why
    assert few.needed > 1000
    json.dumps(few.to_dict())
    with pytest.raises(InputError, match="no validation image counts"):
        certify(replace(cases, positive=cases.label & False), [Goal("ppv", 0.9)])
    with pytest.raises(InputError, match="selective_risk is 0"):
        certify(cases, [Goal("selective_risk", 0.0)])
    with pytest.raises(InputError, match=r"more than 2\. Say --most-images \d+ or more, or leave it out"):
        certify(cases, TARGETS[:1], most_images=2)


def test_a_threshold_below_the_first_test_of_a_goal_is_refused():
    """The sure errors lie lowest: sensitivity is certified up to them, NPV only where they are diluted."""
    n = 1000
    prob = np.linspace(0, 1, n)
    label = (prob > 0.9) | ((np.arange(n) < 40) & (np.arange(n) % 2 == 0))
    cases = ReferralCases(label, np.zeros(n, bool), prob, np.arange(n), np.ones(n))
    goals = [Goal("sensitivity", 0.9), Goal("npv", 0.85)]
    apart = [certify(cases, [goal], 0.1) for goal in goals]
    assert apart[0].threshold < 0.05 < 0.2 < apart[1].begins < apart[1].threshold
    assert label[prob <= apart[0].threshold].mean() > 0.15  # what the pair would break
    both = certify(cases, goals, 0.1)
    assert not both.granted
    assert "for fewer images only" in both.why


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
    patient, label = np.repeat(np.arange(150), 2), np.tile([False, True], 150)
    u, goals = np.random.default_rng(0).random(300), [Goal("selective_risk", 0.1)]
    for per, granted in (("image", False), ("patient-image", True)):
        cases = ReferralCases(label, label, u, patient, weights(patient, per))
        assert certify(cases, goals).granted
        assert certify(cases, goals, most_images=100).granted is granted


def test_of_few_patients_chance_chooses_one_image_each():
    """Two diseased eyes each, the surest missed: certified where the other eye is chosen, in half of 30 studies (seeds [5, study]; SE 2.7)."""
    patient, label, said, granted = np.repeat(np.arange(22), 2), np.ones(44, bool), np.arange(44) > 0, 0
    for study in range(30):
        u = said * np.random.default_rng([5, study]).random(44)
        found = certify(ReferralCases(label, said, u, patient, np.ones(44)), [Goal("sensitivity", 0.9)], 0.1)
        granted += found.threshold == np.inf
        assert found.goals[0].one_image
    assert abs(granted - 15) <= 8
    found = certify(ReferralCases(label, label, u, patient, np.ones(44)), [Goal("sensitivity", 0.9)], 0.1)
    assert (found.threshold, found.goals[0].last.p_value) == (np.inf, pytest.approx(0.9**22))
