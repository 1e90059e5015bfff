"""The facts of the verdict, by hand, and its first words on models whose worth is known."""

import re

import numpy as np
import pytest

import retinabench as rb
from conftest import shared_path
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import figures
from retinabench.reports.evaluation.evaluation import Evaluation, EvaluationSettings, MethodPredictions, SetPredictions
from retinabench.reports.evaluation.facts import verdict
from retinabench.reports.evaluation.terminal import scores_table
from retinabench.reports.evaluation.write import write_report
from retinabench.reports.toolkit.figures import mark
from retinabench.reports.toolkit.tables import Quantity
from support.fake_predictions import population, predictions
from support.reading_pages import printed
from support.screened import drawn


@pytest.fixture(autouse=True)
def _(monkeypatch):
    """Pages without figures: no verdict reads them."""
    for name in ("roc_panels", "referral_panels", "histogram_panels", "reliability_panels", "lead_panel"):
        monkeypatch.setattr(figures, name, lambda _: [])


BETTER, WORSE, UNCLEAR = (Quantity(0.05, 0.01, 0.09), Quantity(-0.05, -0.09, -0.01), Quantity(0.01, -0.02, 0.04))


def case(name: str) -> Predictions:
    return rb.read_predictions(shared_path("cases", f"{name}.csv"))


def noise(prob, label):
    return np.random.default_rng(1).normal(size=len(prob))


def in_terminal(predictions: Predictions) -> str:
    return " ".join(printed(scores_table(["model"], [rb.score(predictions, bootstrap=60)])).split())


def on_page(predictions: Predictions, out, **options) -> str:
    page = write_report({"model": predictions}, out, EvaluationSettings(**{"bootstrap": 60, **options})).read_text()
    text = page[page.index('class="answer"') : page.index('id="scored"')]
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


ONE_PATIENT = Predictions([f"i{k}" for k in range(40)], [0, 1] * 20, [0.6, 0.4] * 20, patient_id=["a"] * 40)
ONE_DISEASED = Predictions([f"i{k}" for k in range(100)], [1] + [0] * 99, [0.45] + [0.2] * 99)
CASES = {
    "one diseased patient": (lambda: ONE_DISEASED, ["Too few patients to say.", "Only 1 patient has referable disease"]),
    "weak but calibrated": (
        lambda: drawn(0.75), ["Informative probabilities.", "better than always giving the prevalence: Brier skill"],
    ),
    "useless": (lambda: drawn(0.25, shift=4.2, scale=3), ["Not useful. On the in-domain images, “model” is worse than always"]),
    "never positive": (lambda: case("never"), ["Finds no disease.", "finds none of the 56 referable images: sensitivity 0.00 [0.00"]),
    "perfect on few": (lambda: case("perfect"), ["Too few patients to say.", "Only 6 patients have referable disease"]),
    "inverted": (lambda: drawn(2, turned=-1), ["Inverted. On the in-domain images, “model” ranks images without disease above"]),
    "one patient": (lambda: ONE_PATIENT, ["Without intervals: Too few patients to say."]),
    "class weights": (lambda: drawn(2, shift=3), ["Not useful as it stands.", "too high, as after training with class weights"]),
    "useful": (lambda: drawn(2), ["Useful. On the in-domain images, “model” is better than always predicting"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_words_are_true_in_the_terminal_and_on_the_page(name, tmp_path):
    make, (lead, *more) = CASES[name]
    text = in_terminal(make())
    assert text.startswith(lead)
    assert all(one in text for one in more)
    assert lead in on_page(make(), tmp_path)[:400]


def test_the_corrected_prior_of_class_weights_is_found():
    offset = re.search(r"Adding −(\d\.\d+) to every log odds", in_terminal(drawn(2, shift=3)))
    assert offset is not None
    assert float(offset[1]) == pytest.approx(3, abs=0.4)  # standard error about .1


def wrong_first(prob, label):
    return np.abs(prob - label) + noise(prob, label)


PAGES = {
    "a useless model is not saved by its uncertainty": (
        lambda: drawn(0.25, shift=4.2, scale=3, uncertainty=wrong_first), {"referred": 0.1}, "This does not make “model” useful",
    ),
    "useless uncertainty": (lambda: drawn(2, uncertainty=noise), {}, "No use of the uncertainty is shown."),
    "a curve below random": (
        lambda: drawn(2, uncertainty=lambda p, y: -np.abs(np.abs(p - 0.5) - 0.45)), {}, "Below random referral.",
    ),
    "the share referred": (lambda: drawn(2), {"referred": 0.1}, "referring the 10 % of the images"),
    "no intervals": (lambda: drawn(2), {"bootstrap": 0}, "Without intervals: Useful."),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_the_page_says(name, tmp_path):
    make, options, says = PAGES[name]
    page = on_page(make(), tmp_path, **options).replace("\N{NO-BREAK SPACE}", " ")
    assert says in page
    assert "are referable (" in page  # what is retained


def evaluation(gains: list[dict[str, Quantity]], **scores: Quantity) -> Evaluation:
    """Methods with the given gain from referral on each set, and further scores on every set."""
    file = predictions("MAP", 0, population(60, 40))
    methods = [MethodPredictions(f"m{i}", (file,)) for i in range(len(gains))]
    sets = list(gains[0])
    found = Evaluation(methods, EvaluationSettings(bootstrap=10), sets, [mark(i) for i in range(len(gains))])
    for i, of_sets in enumerate(gains):
        for name, gain in of_sets.items():
            case = SetPredictions.of(file, name)
            assert case is not None
            found.cases[i, name], found.seeds[i, name] = [case], [(i,)]
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
    assert verdict(evaluation([{"in_domain": signs[0], "shifted": signs[1]}]))["overall"] == overall
    two = verdict(evaluation([{"shifted": signs[0]}, {"shifted": signs[1]}]))
    assert (two["overall"], two["outcomes"][0]["methods"]) == (overall, 2)


def test_gains_are_stated_only_where_referral_is_better():
    found = verdict(evaluation([{"in_domain": UNCLEAR, "shifted": BETTER}], closed_at_50=Quantity(0.4)))
    assert (found["gains"], found["referral"]) == (["shifted"], ["shifted", "in_domain"])


@pytest.mark.parametrize(
    ("share", "accuracy", "change", "below"),
    [
        (Quantity(0.1, 0.05, 0.15), 0.88, -1, True), (Quantity(0.1, 0.05, 0.15), 0.9, -1, False), (Quantity(0.8, 0.7, 0.9), 0.79, 1, True),
        (Quantity(0.6, 0.2, 0.9), 0.7, 0, False), (Quantity(0.1), float("nan"), 0, False),
    ],
)  # fmt: skip
def test_the_composition_of_the_retained_by_hand(share, accuracy, change, below):
    """A change is shown by the interval alone, and the baseline answers the larger class of the retained."""
    found = evaluation([{"in_domain": BETTER}], prevalence_at_50=share, accuracy_at_50=Quantity(accuracy))
    one = verdict(found)["retained"]["in_domain"]
    assert (one["change"], one["below_baseline"]) == (change, below)
