"""The decision threshold: its grammar, brute force over candidates, and every score that must follow it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import recall_score

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_threshold import DecisionThreshold, FrozenThreshold
from retinabench.metrics.uncertainty import margin


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
        ("0.3", "value", 0.3, ""),
        (0.3, "value", 0.3, ""),
        ("youden", "youden", None, ""),
        ("Youden@test", "youden", None, "test"),
        ("sensitivity=.85@validation", "sensitivity", 0.85, "validation"),
        ("specificity=0.9", "specificity", 0.9, ""),
    ],
)
def test_reads_what_a_user_gives(text, rule, goal, split):
    found = DecisionThreshold.parse(text)
    assert (found.rule, found.split) == (rule, split)
    assert goal is None or found.goal == goal


@pytest.mark.parametrize(
    "text",
    [
        "30",
        "-0.1",
        "nan",
        "",
        "sensitivity",
        "sensitivity=85",
        "sensitivity=0",
        "youden=0.5",
        "youden@train",
        "youden@",
    ],
)
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
        sens, spec = recall_score(y, said), recall_score(~y, ~said)
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
    moved = rb.Predictions(
        test.image_id, test.label, odds / (1 + odds), uncertainty=-np.round(np.abs(test.prob - 0.5), 6)
    )
    own = rb.score(moved, bootstrap=0)["in_domain"]
    for name in ("accuracy", "sensitivity", "specificity", "auroc"):
        assert found[name].value == pytest.approx(own[name].value), name
    for name in ("failure_auroc", "augrc", "rc_index", "referral_accuracy_area"):
        assert found[name].value == pytest.approx(own[name].value), name


def test_margin_is_largest_at_the_threshold_and_total_order_at_one_half():
    assert margin([0.2, 0.05, 0.5], 0.2) == pytest.approx([1, (0.05 / 0.95) / 0.25, 0.25])
    predictions = drawn()
    by_margin = rb.score(predictions, bootstrap=0, uncertainty="margin")["in_domain"]
    by_total = rb.score(predictions, bootstrap=0, uncertainty="total")["in_domain"]
    assert by_margin.failure_auroc.value == by_total.failure_auroc.value
    assert any(
        "--uncertainty margin" in note for note in rb.score(predictions, bootstrap=0, threshold=0.1).notes
    )


def test_each_model_of_a_comparison_gets_its_own_threshold():
    a = drawn()
    logit = np.log(np.clip(a.prob, 0.001, 0.999) / (1 - np.clip(a.prob, 0.001, 0.999)))
    b = rb.Predictions(a.image_id, a.label, 1 / (1 + np.exp(-logit - 1)), split=a.split)
    found = rb.compare(a, b, bootstrap=0, threshold="sensitivity=.85@validation")
    assert found.thresholds[0].value < found.thresholds[1].value
    assert found["in_domain"]["sensitivity"].difference == pytest.approx(0)
    assert len(found.to_dict()["thresholds"]) == 2


def test_rules_without_images_or_a_class_are_refused():
    test_only = rb.Predictions(["a", "b"], [0, 0], [0.1, 0.2])
    with pytest.raises(InputError, match="validation split"):
        DecisionThreshold.parse("youden@validation").freeze(test_only)
    with pytest.raises(InputError, match="both classes"):
        DecisionThreshold.parse("youden").freeze(test_only)
    with pytest.raises(InputError, match="published rules"):
        rb.score(test_only, "published", threshold=0.3)


def test_without_validation_images_the_choice_is_marked():
    found = DecisionThreshold.parse("youden").freeze(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.2]))
    assert found.same_images
    assert "same images" in found.note


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
    assert (
        "1 patients are in the test split, too"
        in rule.freeze(rb.Predictions(**images, split=split, patient_id=["p", "q", "p", "r"])).note
    )
    apart = rule.freeze(rb.Predictions(**images, split=split, patient_id=["p", "q", "s", "r"]))
    assert "too" not in apart.note
