"""The facts of the verdict follow from the intervals alone: evaluations with chosen numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluate import evaluate_methods
from retinabench.reports.evaluation.evaluation import Evaluation, EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.set_statistics import SetPredictions
from retinabench.reports.evaluation.verdict.findings import verdict
from retinabench.reports.toolkit.number_format import Quantity
from retinabench.reports.toolkit.style import mark
from support.fake_predictions import population, predictions

BETTER, WORSE, UNCLEAR = (
    Quantity(0.05, 0.01, 0.09),
    Quantity(-0.05, -0.09, -0.01),
    Quantity(0.01, -0.02, 0.04),
)
NHS = "sensitivity_at_specificity_80"


def evaluation(gains: list[dict[str, Quantity]], **scores: Quantity) -> Evaluation:
    """Methods with the given gain from referral on each set, and further scores on every set."""
    file = predictions("MAP", 0, population(60, 40))
    methods = [MethodPredictions.of(f"m{i}", file) for i in range(len(gains))]
    sets = list(gains[0])
    found = Evaluation(methods, EvaluationSettings(bootstrap=10), sets, [mark(i) for i in range(len(gains))])
    for i, of_sets in enumerate(gains):
        for name, gain in of_sets.items():
            case = SetPredictions.of(file, name)
            assert case is not None
            found.cases[i, name] = [case]
            number = len(found.replicated)
            found.replicates[i, name] = np.zeros((1, number)), np.zeros((1, 5, number))
            found.estimates[i, name, "gain_at_50"] = gain
            found.estimates.update({(i, name, score): value for score, value in scores.items()})
    return found


@pytest.mark.parametrize(
    ("signs", "overall"),
    [
        ((BETTER, BETTER), "better"), ((WORSE, WORSE), "worse"), ((BETTER, WORSE), "partly worse"),
        ((BETTER, UNCLEAR), "partly better"), ((UNCLEAR, UNCLEAR), "unclear"), ((Quantity(0.5), Quantity(0.5)), "unclear"),
    ],
)  # fmt: skip
def test_overall_verdict_needs_intervals_on_one_side_of_zero(signs, overall):
    one = verdict(evaluation([{"in_domain": signs[0], "shifted": signs[1]}]))
    assert one.overall == overall
    two = verdict(evaluation([{"shifted": signs[0]}, {"shifted": signs[1]}]))
    assert two.overall == overall
    assert two.outcomes[0].methods == 2


def test_gains_are_stated_only_where_referral_is_better():
    found = evaluation([{"in_domain": UNCLEAR, "shifted": BETTER}], closed_at_50=Quantity(0.4))
    assert verdict(found).gains == ["shifted"]
    assert verdict(found).referral == ["shifted", "in_domain"]


def test_screening_standard_by_bounds_and_estimates_at_the_decision_threshold():
    """48 of 50 diseased and 95 of 100 healthy images found: 85 % and 80 % by the bounds; 45 of 50: by the estimate."""
    found = evaluation([{"in_domain": BETTER}] * 3)
    for i, (hits, value) in enumerate([(48, 0.96), (45, 0.90), (30, 0.60)]):
        label = np.repeat([1, 0], [50, 100])
        prob = np.concatenate([np.repeat([0.9, 0.1], [hits, 50 - hits]), np.repeat([0.1, 0.9], [95, 5])])
        case = SetPredictions.of(Predictions([f"i{k}" for k in range(150)], label, prob), "in_domain")
        found.cases[i, "in_domain"] = [case]
        found.estimates[i, "in_domain", NHS] = Quantity(value)
    [one] = verdict(found).screening
    assert (one.sure, one.estimated, one.best, one.reachable.value) == (["m0"], ["m1"], "m0", 0.96)
    assert not one.chosen_here


def test_a_threshold_chosen_on_the_same_images_meets_nothing(tmp_path):
    perfect = Predictions([f"i{k}" for k in range(400)], np.arange(400) % 2, 0.8 * (np.arange(400) % 2) + 0.1)
    for threshold, sure in (("0.5", ["m"]), ("youden@test", [])):
        found = evaluate_methods(
            [MethodPredictions.of("m", perfect)], EvaluationSettings(bootstrap=20, threshold=threshold)
        )
        [one] = verdict(found).screening
        assert (list(one.sure), one.chosen_here) == (sure, not sure)


def test_shift_is_stated_in_accuracy_where_auroc_is_undefined():
    found = evaluation([{"in_domain": BETTER, "shifted": BETTER}], auroc=Quantity(math.nan))
    found.changes = {(0, "auroc"): UNCLEAR, (0, "accuracy"): WORSE}
    change = verdict(found).shift
    assert change is not None
    assert (change.score, change.change.sign()) == ("accuracy", -1)


def test_few_errors_or_patients_are_reported():
    one = {few.set: few for few in verdict(evaluation([{"in_domain": BETTER, "shifted": BETTER}])).scarce}
    assert one["shifted"].patients == 20  # 40 images of two eyes
    assert one["shifted"].images == 40


def test_methods_with_equal_replicates_are_level():
    order = verdict(evaluation([{"in_domain": BETTER}] * 2)).order
    assert order is not None
    assert (order.ahead, order.level, order.others) == ([], ["m1"], 1)


def test_one_method_has_no_order():
    assert verdict(evaluation([{"in_domain": BETTER}])).order is None
