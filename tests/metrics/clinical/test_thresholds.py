"""Operating points against the golden file, brute force over thresholds, and statsmodels-style clustered variances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import recall_score, roc_curve

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.classification import sensitivity_at_of, specificity_at_of
from retinabench.metrics.clinical.screening_table import ClinicalGoal, TwoByTwo, judge_goals, two_by_two
from retinabench.metrics.image_sets import DecisionThreshold, FrozenThreshold, operating_points, referral_rule
from retinabench.metrics.weighted_images import Cases

BEST = {"sensitivity": sensitivity_at_of, "specificity": specificity_at_of}


def test_golden_operating_points(data, golden):
    for name, want in golden["operating_points_n400"].items():
        if "@" not in name:
            continue
        goal = float(name[-4:])
        of = "sensitivity" if name.startswith("sens") else "specificity"
        assert BEST[of](Cases(data["y"], data["p"]).weighted(), goal) == pytest.approx(want[of], abs=1e-12)
    _, sens, spec = operating_points(data["y"], data["p"])
    met = bool(((sens >= 0.85) & (spec >= 0.80)).any())
    assert met is golden["operating_points_n400"]["nhs_85_80_met_anywhere"]


CASES = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1, max_size=40)


@given(CASES, st.floats(0, 1).map(lambda goal: round(goal, 6)))
@settings(deadline=None)
def test_the_best_point_by_brute_force(cases, goal):
    y, p = np.array([c[0] for c in cases]), np.array([c[1] / 8 for c in cases])
    tables = {t: two_by_two(y, p >= t) for t in (np.inf, *np.unique(p))}
    for first, second in (("sensitivity", "specificity"), ("specificity", "sensitivity")):
        found = BEST[first](Cases(y, p).weighted(), goal)
        allowed = [getattr(t, first) for t in tables.values() if getattr(t, second) >= goal - 1e-12]
        assert found == pytest.approx(np.nan if y.all() or not y.any() else max(allowed), nan_ok=True)


def test_points_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, p = rng.random(500) < 0.3, rng.random(500).round(2)
    threshold, sens, spec = operating_points(y, p)
    fpr, tpr, oracle = roc_curve(y, p, drop_intermediate=False)
    np.testing.assert_array_equal(threshold, oracle)
    np.testing.assert_allclose(sens, tpr, atol=1e-15)
    np.testing.assert_allclose(1 - spec, fpr, atol=1e-15)


def test_goals_distinguish_estimate_and_bound():
    label = np.repeat([1, 0], [198, 621])
    positive = np.concatenate([np.arange(198) < 173, np.arange(621) < 65])
    assert two_by_two(label, positive) == TwoByTwo(173, 65, 25, 556)
    for one in judge_goals(label, positive).values():
        assert (one["estimate_met"], one["bound_met"]) == (True, False)
        assert one["estimate"] == pytest.approx((0.8737374, 0.8953301), abs=1e-7)
        assert one["bound"] == pytest.approx((0.8192757, 0.8685385), abs=1e-7)
    assert judge_goals(label, positive, goals={"mine": ClinicalGoal(0.8, 0.8, "")})["mine"]["bound_met"]
    twice = np.repeat(label, 2), np.repeat(positive, 2)
    clustered, naive = (judge_goals(*twice, *ids)["nhs"]["bound"][0] for ids in ([np.repeat(np.arange(819), 2)], []))
    assert clustered < naive
    assert clustered == pytest.approx(0.8192757, abs=2e-3)
    assert not judge_goals([1, 1], [1, 1])["nhs"]["estimate_met"]  # no negative: nothing is shown


def drawn(seed=0, n=400, prevalence=0.2):
    """Half validation, half test; a model with AUROC about 0.8 whose probabilities are too low for 0.5."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < prevalence).astype(int)
    prob = np.round(1 / (1 + np.exp(-(rng.normal(size=n) + 1.2 * label - 2))), 2)
    split = np.where(np.arange(n) < n // 2, "validation", "test")
    return rb.Predictions([f"i{k}" for k in range(n)], label, prob, split=split)


@pytest.mark.parametrize(
    ("text", "rule", "goal", "split"),
    [
        ("0.3", "value", 0.3, ""), (0.3, "value", 0.3, ""), ("youden", "youden", None, ""),
        ("Youden@test", "youden", None, "test"), ("sensitivity=.85@validation", "sensitivity", 0.85, "validation"),
        ("specificity=0.9", "specificity", 0.9, ""),
    ],
)  # fmt: skip
def test_reads_what_a_user_gives(text, rule, goal, split):
    found = DecisionThreshold.parse(text)
    assert (found.rule, found.split) == (rule, split)
    assert goal is None or found.goal == goal


@pytest.mark.parametrize(
    "text",
    [
        "30", "-0.1", "nan", "", "sensitivity", "sensitivity=85", "sensitivity=0", "youden=0.5", "youden@train",
        "youden@",
    ],
)  # fmt: skip
def test_refuses_what_is_no_threshold(text):
    with pytest.raises(InputError):
        DecisionThreshold.parse(text)


@pytest.mark.parametrize("rule", ["youden", "sensitivity=0.85", "specificity=0.9"])
def test_rules_equal_brute_force_over_every_distinct_probability(rule):
    predictions = drawn()
    part = predictions.select(split="validation")
    y, best = part.label == 1, []
    for t in np.unique(part.prob):
        said = part.prob >= t
        sens, spec = said[y].mean(), (~said)[~y].mean()
        value = {"youden": sens + spec, "sensitivity=0.85": spec, "specificity=0.9": sens}[rule]
        allowed = {"youden": True, "sensitivity=0.85": sens >= 0.85, "specificity=0.9": spec >= 0.9}[rule]
        best.append((value if allowed else -1, t))
    found = DecisionThreshold.parse(rule).freeze(predictions)
    assert found.value == max(best)[1]
    assert (found.chosen_on, found.images, found.same_images) == ("validation", 200, False)


def test_default_changes_nothing_and_keeps_exactly_one_half_negative():
    predictions = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.5, 0.5, 0.6])
    found = rb.score(predictions, bootstrap=0)
    assert found.to_dict() == rb.score(predictions, bootstrap=0, threshold="0.5").to_dict()
    assert found["in_domain"].sensitivity.value == 0.5
    assert found.threshold.is_default


def test_a_rule_that_lands_on_one_half_includes_one_half():
    predictions = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.4, 0.5, 0.6])
    found = rb.score(predictions, bootstrap=0, threshold="youden@test")
    assert found["in_domain"].sensitivity.value == 1
    assert found.threshold.same_images


def test_every_thresholded_score_follows_the_threshold():
    predictions = drawn()
    test = predictions.select(split="test")
    found = rb.score(predictions, bootstrap=0, threshold=0.195)["in_domain"]
    said, y = test.prob >= 0.195, test.label == 1
    assert found.sensitivity.value == pytest.approx(recall_score(y, said))
    assert found.specificity.value == pytest.approx(recall_score(~y, ~said))
    assert found.accuracy.value == pytest.approx(np.mean(said == y))
    assert found.referral["accuracy"]["0"] == found.accuracy.value
    assert found.referral["sensitivity"]["0"] == pytest.approx(found.sensitivity.value)
    # Moving every probability by the odds of the threshold gives the same calls at one half.
    odds = test.prob / (1 - test.prob) * (0.805 / 0.195)
    moved = rb.Predictions(test.image_id, test.label, odds / (1 + odds))
    own = rb.score(moved, bootstrap=0)["in_domain"]
    for name in ("accuracy", "sensitivity", "specificity", "auroc"):
        assert found[name].value == pytest.approx(own[name].value), name
    for name in ("failure_auroc", "augrc", "rc_index", "referral_accuracy_area"):
        assert found[name].value == pytest.approx(own[name].value), name


def test_rules_without_images_or_a_class_are_refused():
    test_only = rb.Predictions(["a", "b"], [0, 0], [0.1, 0.2])
    with pytest.raises(InputError, match="validation split"):
        DecisionThreshold.parse("youden@validation").freeze(test_only)
    with pytest.raises(InputError, match="both classes"):
        DecisionThreshold.parse("youden").freeze(test_only)
    with pytest.raises(InputError, match="published rules"):
        rb.score(test_only, "published", threshold=0.3)


def test_a_specificity_that_no_threshold_but_infinity_reaches_calls_nobody():
    upside_down = rb.Predictions(["a", "b"], [0, 1], [0.9, 0.2])
    found = DecisionThreshold.parse("specificity=1").freeze(upside_down)
    assert found.value > 1
    assert rb.score(upside_down, bootstrap=0, threshold="specificity=1")["in_domain"].sensitivity.value == 0
    assert FrozenThreshold().note is None


def test_patients_who_chose_the_threshold_and_are_scored_are_counted():
    images = {"image_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1], "probs": [0.1, 0.8, 0.2, 0.7]}
    split = ["validation", "validation", "test", "test"]
    rule = DecisionThreshold.parse("youden@validation")
    frozen = rule.freeze(rb.Predictions(**images, split=split, patient_id=["p", "q", "p", "r"]))
    assert "1 patients are in the test split, too" in frozen.note
    apart = rule.freeze(rb.Predictions(**images, split=split, patient_id=["p", "q", "s", "r"]))
    assert "too" not in apart.note


def given_of_referral_rule(uncertainty, split="test"):
    n = len(uncertainty)
    return rb.Predictions(np.arange(n), np.arange(n) % 2, np.full(n, 0.4), uncertainty=uncertainty, split=[split] * n)


def rule(predictions, threshold=None, rate=None):
    return referral_rule(predictions, "auto", 0.5, threshold=threshold, rate=rate)


def test_a_rate_refers_at_most_that_share():
    values = np.array([0.1, 0.5, 0.5, 0.9, 0.7])
    for rate, most in ((0.0, 0), (0.2, 1), (0.4, 2), (0.6, 2), (0.8, 4), (1.0, 5)):  # the two ties go together
        found = rule(given_of_referral_rule(values), rate=rate)
        assert found.refers(values).sum() == most
    assert (found.chosen_on, found.images, found.same_images, found.uncertainty) == ("test", 5, True, "own")


def test_validation_images_choose_where_there_are_any():
    both = rb.Predictions(
        np.arange(8), [0, 1] * 4, [0.4] * 8, uncertainty=[1, 2, 3, 4, 10, 20, 30, 40],
        split=["validation"] * 4 + ["test"] * 4,
    )  # fmt: skip
    found = rule(both, rate=0.25)
    assert (found.threshold, found.chosen_on) == (3, "validation")


def test_a_threshold_is_taken_as_it_is():
    assert rule(given_of_referral_rule([0.1, 0.2]), threshold=0.15).threshold == 0.15
    assert not rule(given_of_referral_rule([0.1, 0.2])).refers(np.array([1e9])).any()
    with pytest.raises(InputError, match="exclude"):
        rule(given_of_referral_rule([0.1]), threshold=0.1, rate=0.1)
    with pytest.raises(InputError, match="rate"):
        rule(given_of_referral_rule([0.1]), rate=1.5)
