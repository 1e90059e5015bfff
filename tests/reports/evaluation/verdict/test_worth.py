"""The first sentences of page and terminal are true for models that misled readers."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

import retinabench as rb
from conftest import shared_path
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.terminal import scores_table
from retinabench.reports.evaluation.write import write_report

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
