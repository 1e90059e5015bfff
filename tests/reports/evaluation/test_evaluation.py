import inspect
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.comparison import compare
from retinabench.metrics.referral_curves import METRICS as REFERRAL
from retinabench.metrics.registry import SCORES, difference_method
from retinabench.metrics.weighted_images import Cases, cluster_codes, replicate_weight
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import evaluation
from retinabench.reports.evaluation.evaluation import EvaluationSettings, SetPredictions, evaluate_methods, observed
from retinabench.reports.evaluation.facts import verdict
from retinabench.reports.evaluation.write import MOST_METHODS, pathways, policy_grids, policy_records
from retinabench.reports.toolkit.figures import OTHERS
from support.fake_predictions import population, predictions


@pytest.mark.parametrize("kind", ["free", "entropy", "ties", "one block"])
def test_all_curves_of_many_weightings_are_those_of_one_after_the_other(kind):
    rng = np.random.default_rng(0)
    n = 250
    p = np.round(rng.random(n), 2)
    u = {"free": rng.random(n), "entropy": p * (1 - p), "ties": rng.integers(0, 9, n), "one block": np.zeros(n)}
    images = [f"i{k}" for k in range(n)]
    given = Predictions(images, rng.random(n) < 0.3, p, uncertainty=u[kind].astype(float))
    case = SetPredictions.of(given, "in_domain")
    assert case is not None
    curves = evaluation.all_curves(case)
    weight = rng.multinomial(n, np.full(n, 1 / n), 6).astype(float)
    weight[5] *= np.arange(n) < 12  # few images, perhaps of one class
    np.testing.assert_array_equal(curves(weight), np.concatenate([curves(one[None]) for one in weight]))


def test_observed_shares_by_bin_by_hand():
    case = SetPredictions.of(predictions("MC dropout", 0, population(200, 100)), "in_domain")
    assert case is not None
    weight = np.arange(len(case), dtype=float)
    shares = observed(case, weight)
    order = np.argsort(case.prob)
    lowest = order[case.bins[order] == 0]
    assert shares[0] == pytest.approx(np.average(case.label[lowest], weights=weight[lowest]))
    assert np.bincount(case.bins).tolist() == [20] * 10


def test_differences_average_over_seeds_and_have_a_t_interval():
    values = np.array([[1.0], [3.0]])
    replicates = np.stack([np.linspace(0, 1, 101), np.linspace(2, 3, 101)])[..., None]
    whole = Cases([0, 1] * 20, np.linspace(0, 1, 40)).weighted()
    [found] = evaluation.quantities([difference_method(SCORES["accuracy"].interval)], [whole], values, replicates)
    assert (found.value, found.error) == (2.0, 1.0)
    half = stats.t.ppf(0.975, 39) * np.linspace(1, 2, 101).std(ddof=1)
    assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))


def test_oracle_referral_refers_every_error_first_at_any_threshold():
    rng = np.random.default_rng(0)
    prob, label = rng.random(200), rng.integers(0, 2, 200)
    found = Predictions([f"i{k}" for k in range(200)], label, prob)
    for threshold in (0.5, 0.2, 0.8):
        case = SetPredictions.of(found, "in_domain", threshold=threshold)
        errors = int((~case.correct).sum())
        accuracy = REFERRAL["accuracy"](case.oracle.weighted())
        assert accuracy[200 - errors - 1] == 1
        assert accuracy[-1] == np.mean((prob >= threshold) == label)


def test_a_method_is_never_better_than_itself():
    found = predictions("MC dropout", 0, population(80, 40))
    evaluation = evaluate_methods({"a": found, "b": found}, EvaluationSettings(bootstrap=10))
    gap = evaluation.difference(0, 1, "joint", "auroc")
    assert (gap.value, gap.sign()) == (0.0, 0)
    assert np.isnan([gap.low, gap.high]).all()
    assert evaluation.best("joint", "auroc") is None
    order = verdict(evaluation)["order"]
    assert order is not None
    assert (order["ahead"], order["level"]) == ([], ["b"])


def test_a_clearly_better_method_is_bold():
    people = population(200, 100)
    good = predictions("MC dropout", 0, people)
    noise = np.random.default_rng(0).uniform(size=len(good))
    poor = type(good)(good.image_id, good.label, noise, patient_id=good.patient_id, domain=good.domain)
    evaluation = evaluate_methods({"poor": poor, "good": good}, EvaluationSettings(bootstrap=40))
    assert evaluation.best("joint", "auroc") == 1
    assert evaluation.best("joint", "nll") == 1
    assert evaluation.leader == 1


def test_methods_on_other_images_are_not_ranked():
    whole = predictions("MC dropout", 0, population(80, 40))
    part = predictions("MAP", 0, population(80, 40)).take(np.arange(100))
    evaluation = evaluate_methods({"whole": whole, "part": part}, EvaluationSettings(bootstrap=10))
    assert not evaluation.same_images
    assert verdict(evaluation)["order"] is None


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_stated_difference_is_that_of_compare(seeds):
    """Whatever the order of the rows; the seeds of both methods are the same, so that they are paired."""
    people = population(100, 50)
    a = [predictions("MC dropout", seed, people) for seed in range(seeds)]
    b = [predictions("MAP", seed, people) for seed in range(seeds)]
    b = [one.take(np.random.default_rng(0).permutation(len(one))) for one in b]
    methods = {"a": a, "b": b}
    found = evaluate_methods(methods, EvaluationSettings(bootstrap=60, seed=3))
    names = ["accuracy_at_50", "nll", "auroc", "accuracy"]
    compared = compare(a, b, bootstrap=60, seed=3, scores=names).sets["joint"].scores
    for name, other in compared.items():
        gap = found.difference(0, 1, "joint", name)
        assert other.high > other.low
        assert (gap.value, gap.low, gap.high) == pytest.approx((other.difference, other.low, other.high))


def test_report_takes_every_setting_with_the_same_default():
    taken = inspect.signature(rb.report).parameters
    assert {one.name: taken[one.name].default for one in fields(EvaluationSettings)} == {
        one.name: one.default for one in fields(EvaluationSettings)
    }


@pytest.mark.parametrize("share", [0.0, 0.009, 0.951, 1.0, float("nan")])
def test_a_share_outside_its_limits_is_refused(share):
    with pytest.raises(InputError, match="share referred"):
        EvaluationSettings(referred=share)


@pytest.fixture(scope="module")
def joint():
    case = SetPredictions.of(predictions("MC dropout", 0, population(60, 40)), "joint")
    assert case is not None
    return case


def test_what_is_resampled_beside_the_scores_is_what_it_is_alone(joint):
    people = population(60, 40)
    found = evaluate_methods({"MC dropout": predictions("MC dropout", 0, people)}, EvaluationSettings(bootstrap=5))
    _, replicates = found.replicates[0, "joint"]
    codes, patients = cluster_codes(joint.cluster)
    for number in range(5):
        w = joint.cases.weighted(replicate_weight(codes, patients, 0, number))
        expected = [found.spec(name)(w) for name in found.replicated]
        np.testing.assert_allclose(replicates[0, number], expected, atol=1e-10)


def test_changes_are_shifted_minus_in_domain_by_scikit_learn(joint):
    weight = np.random.default_rng(0).poisson(1.0, (4, len(joint))).astype(float)
    found = evaluation.changes(joint)(weight)
    for row, one in zip(found, weight, strict=True):
        parts = [np.flatnonzero((joint.domain == name) & (one > 0)) for name in ("in_domain", "shifted")]
        near, far = (roc_auc_score(joint.label[r], joint.prob[r], sample_weight=one[r]) for r in parts)
        assert row[0] == pytest.approx(far - near, abs=1e-12)
        near, far = (np.average((joint.prob[r] > 0.5) == joint.label[r], weights=one[r]) for r in parts)
        assert row[1] == pytest.approx(far - near, abs=1e-12)


def test_of_many_methods_the_first_three_have_colours_and_the_others_are_grey():
    rng = np.random.default_rng(1)
    label = np.arange(80) % 3 == 0
    methods = {}
    for number in range(6):
        prob = 1 / (1 + np.exp(-(4 * label - 2 + (1 + number) * rng.normal(size=80))))
        methods[f"m{number}"] = rb.Predictions(np.arange(80), label, prob)
    found = evaluate_methods(methods, EvaluationSettings(bootstrap=0))
    assert sorted(found.marks, key=lambda one: one.hue)[3:] == [OTHERS] * 3
    assert found.marks[found.leader].hue == 0
    assert len({one.color for one in found.marks}) == 4


def ten_images():
    """Four of ten images are referable, graded 2 to 4; three of them are missed, the surest last."""
    prob = [0.9, 0.45, 0.3, 0.02, 0.1, 0.12, 0.4, 0.6, 0.05, 0.15]
    grade = [2, 3, 4, 2, 0, 1, 0, 1, 0, 0]
    return Predictions([f"i{k}" for k in range(10)], np.array(grade) >= 2, prob, grade=grade)


@pytest.fixture(scope="module")
def found():
    methods = {f"m{k}": ten_images() for k in range(MOST_METHODS + 1)}
    evaluation = evaluate_methods(methods, EvaluationSettings(bootstrap=0, referred=0.3))
    return evaluation, policy_grids(evaluation)


def test_the_stated_pair_by_hand(found):
    """The three images nearest to 0.5 are referred (0.45, 0.4 and 0.6): one of three missed images is caught."""
    evaluation, grids = found
    [one] = pathways(evaluation, grids)
    outcome = one.pop("outcome")
    assert one == {"set": "in_domain", "positives": 4, "severe": 2, "alone": 3, "severe_alone": 2}
    assert outcome.referred.value == pytest.approx(0.3)
    assert outcome.missed.value * 4 == pytest.approx(2)  # retained, and called not referable


def test_the_leader_and_the_next_ones_have_grids(found):
    evaluation, grids = found
    assert list(grids) == [evaluation.leader, *(i for i in range(5) if i != evaluation.leader)][:MOST_METHODS]
    records = policy_records(evaluation, grids)
    assert records["schema"] == "retinabench.policies/1"
    assert [one["entry"] for one in records["entries"]] == [f"m{i}" for i in grids]
