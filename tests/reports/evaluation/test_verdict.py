"""Facts that follow from others: what referral does to the retained images, by hand."""

from __future__ import annotations

import io
import math
import re

import numpy as np
import pytest
from rich.console import Console

import retinabench as rb
from conftest import shared_path
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import (
    Evaluation,
    EvaluationSettings,
    MethodPredictions,
    SetPredictions,
    evaluate_methods,
)
from retinabench.reports.evaluation.terminal import scores_table
from retinabench.reports.evaluation.verdict import Retained, SetOutcome, verdict
from retinabench.reports.evaluation.write import write_report
from retinabench.reports.toolkit.figures import mark
from retinabench.reports.toolkit.number_format import Quantity
from support.fake_predictions import population, predictions

RATE = Quantity(0.9)


def retained(prevalence, share, accuracy):
    return Retained("in_domain", prevalence, share, RATE, RATE, RATE, RATE, accuracy)


@pytest.mark.parametrize(
    ("share", "change"),
    [(Quantity(0.2, 0.15, 0.25), -1), (Quantity(0.4, 0.35, 0.45), 1), (Quantity(0.32, 0.28, 0.36), 0), (Quantity(0.1), 0)],
)  # fmt: skip
def test_a_change_of_the_prevalence_is_shown_by_its_interval_alone(share, change):
    assert retained(0.3, share, RATE).change == change


@pytest.mark.parametrize(
    ("share", "accuracy", "below"),
    [(0.1, 0.88, True), (0.1, 0.9, False), (0.1, 0.93, False), (0.8, 0.79, True), (0.1, float("nan"), False)],
)
def test_the_baseline_always_answers_the_larger_class_of_the_retained(share, accuracy, below):
    assert retained(0.3, Quantity(share), Quantity(accuracy)).below_baseline is below


def test_counts_leave_the_set_out():
    assert SetOutcome("shifted", 2, 1, 4).counts == (2, 1, 4)


pytestmark = pytest.mark.usefixtures("undrawn")


def case(name: str) -> Predictions:
    return rb.read_predictions(shared_path("cases", f"{name}.csv"))


def drawn(signal: float, *, shift=0.0, scale=1.0, turned=1, uncertainty=None, n=1000, seed=0) -> Predictions:
    """A model whose log odds are right up to shift and scale, at a prevalence of .2."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.2).astype(int)
    right = signal * (rng.normal(size=n) + signal * label) - signal**2 / 2 + np.log(0.25)
    prob = 1 / (1 + np.exp(-turned * (scale * right + shift)))
    own = None if uncertainty is None else uncertainty(prob, label)
    return Predictions([f"i{k}" for k in range(n)], label, prob, uncertainty=own)


def in_terminal(predictions: Predictions) -> str:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(scores_table(["model"], [rb.score(predictions, bootstrap=60)]))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined, no-any-return]


def on_page(predictions: Predictions, out, **options) -> str:
    """The verdict of the page as text."""
    methods = [MethodPredictions.of("model", predictions)]
    page = write_report(methods, out, EvaluationSettings(bootstrap=60, **options)).read_text()
    verdict = page[page.index('class="answer"') : page.index('id="scored"')]
    return " ".join(re.sub(r"<[^>]+>", "", verdict).split())


CASES = {
    "useless": (lambda: drawn(0.25, shift=4.2, scale=3), "Not useful. On the in-domain images, “model” is worse than always"),
    "never positive": (lambda: case("never"), "Finds no disease. On the in-domain images, “model” finds none of the 56 referable images"),
    "perfect on few": (lambda: case("perfect"), "Too few patients to say."),
    "inverted": (lambda: drawn(2, turned=-1), "Inverted. On the in-domain images, “model” ranks images without disease above"),
    "one patient": (
        lambda: Predictions([f"i{k}" for k in range(40)], [0, 1] * 20, [0.6, 0.4] * 20, patient_id=["a"] * 40),
        "Without intervals: Too few patients to say. On the in-domain images, “model” cannot be told from always",
    ),
    "class weights": (lambda: drawn(2, shift=3), "Not useful as it stands."),
    "useful": (lambda: drawn(2), "Useful. On the in-domain images, “model” is better than always predicting"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_words_are_true_in_the_terminal_and_on_the_page(name, tmp_path):
    make, lead = CASES[name]
    assert in_terminal(make()).startswith(lead)
    assert lead in on_page(make(), tmp_path)[:400]


def test_sensitivity_leads_where_no_image_is_called_referable():
    assert "sensitivity 0.00 [0.00" in in_terminal(case("never"))[:160]


def test_few_patients_with_disease_are_counted():
    assert "Only 6 patients have referable disease" in in_terminal(case("perfect"))


def test_class_weights_get_the_corrected_values():
    text = in_terminal(drawn(2, shift=3))
    assert "too high, as after training with class weights" in text
    offset = re.search(r"Adding −(\d\.\d+) to every log odds", text)
    assert offset is not None
    assert float(offset[1]) == pytest.approx(3, abs=0.4)  # standard error about .1


def test_a_useless_model_is_not_saved_by_its_uncertainty(tmp_path):
    wrong_first = drawn(
        0.25,
        shift=4.2,
        scale=3,
        uncertainty=lambda p, y: np.abs(p - y) + np.random.default_rng(1).normal(size=len(p)),
    )
    text = on_page(wrong_first, tmp_path, referred=0.1)
    assert text.startswith("Not useful.") or "Not useful." in text[:200]
    assert "This does not make “model” useful" in text


def test_useful_answers_with_useless_uncertainty(tmp_path):
    model = drawn(2, uncertainty=lambda p, y: np.random.default_rng(1).normal(size=len(p)))
    text = on_page(model, tmp_path)
    assert "Useful." in text[:120]
    assert "No use of the uncertainty is shown." in text
    assert "is not shown to be higher where it errs" in in_terminal(model)


def test_a_curve_below_random_is_said_in_the_verdict(tmp_path):
    turned = drawn(2, uncertainty=lambda p, y: -np.abs(np.abs(p - 0.5) - 0.45))
    text = on_page(turned, tmp_path)
    assert "Below random referral." in text


def test_the_share_referred_is_that_of_the_page(tmp_path):
    text = on_page(drawn(2), tmp_path, referred=0.1)
    assert "referring the 10 % of the images" in text
    assert "half" not in text
    rows = (tmp_path / "table.csv").read_text()
    assert "gain_at_10" in rows
    assert "gain_at_50" not in rows


def test_a_rise_of_accuracy_stands_beside_what_is_retained(tmp_path):
    text = on_page(drawn(2), tmp_path)
    assert re.search(
        r"raises accuracy from .* Of the retained, .* are referable \(\d+ % of all\); their sensitivity is",
        text,
    )


def test_estimates_without_intervals_are_called_so(tmp_path):
    text = write_report(
        [MethodPredictions.of("model", drawn(2))], tmp_path, EvaluationSettings(bootstrap=0)
    ).read_text()
    assert "Without intervals: Useful." in text


def test_a_good_order_without_shown_use_says_so():
    """AUROC about .9 whose probabilities are shifted just so far that the Brier skill is near 0."""
    for shift in (1.4, 1.6, 1.8, 2.0, 2.2, 2.4):
        text = in_terminal(drawn(2, shift=shift, n=200))
        if text.startswith("Not shown"):
            assert text.startswith("Not shown to be useful as it stands.")
            assert "Its order of the images is better than that" in text
            return
    pytest.fail("no shift leaves the question open")


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
