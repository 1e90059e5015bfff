"""Tables for the terminal: complete within 80 columns, and names are no markup."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from rich.console import Console

import retinabench as rb
from retinabench.reports.evaluation.terminal import comparison_table, scores_csv, scores_json, scores_table
from retinabench.reports.guarantees.terminal import transfer_summary
from retinabench.reports.toolkit.number_format import Quantity
from support.fake_predictions import METHODS, population, predictions


def printed(table, width=80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


@pytest.fixture(scope="module")
def people():
    return population(160, 100)


def test_one_file_has_an_interval_and_seeds_have_both_interval_and_error(people):
    one = rb.score(predictions("MAP", 0, people), bootstrap=20)
    auroc = one["shifted"].auroc
    text = printed(scores_table(["MAP"], [one]))
    form = Quantity(auroc.value, auroc.low, auroc.high).form()
    assert f" {form(auroc.value)} " in text
    assert f"{form(auroc.low)}–{form(auroc.high)}" in text
    assert "…" not in text
    assert "±" not in text.partition("Below each value")[0]
    two = rb.score(predictions("MAP", 1, people), bootstrap=20)
    other = two["shifted"].auroc
    mean, low, high = (np.mean([getattr(x, end) for x in (auroc, other)]) for end in ("value", "low", "high"))
    error = abs(auroc.value - other.value) / 2  # std (ddof 1) of two values over the root of 2
    form = Quantity(mean, low, high).form()
    text = printed(scores_table(["MAP", "MAP"], [one, two]))
    assert f" {form(mean)} " in text
    assert f"{form(low)}–{form(high)}" in text
    assert f"± {form(error)}" in text


def test_controls_follow_and_names_are_not_markup(people):
    one = rb.score(predictions("MAP", 0, people), bootstrap=0)
    controls = {"joint": {"oracle referral": {"referral_accuracy_area": 0.98765}}}
    text = printed(scores_table(["[red]x[/red]"], [one], controls))
    assert "[red]x[/red]" in text
    assert text.index("Joint") < text.index("oracle referral") < text.index("0.988")


def test_comparison_shows_both_values_and_the_signed_difference(people):
    a, b = (predictions(name, 0, people) for name in list(METHODS)[:2])
    found = rb.compare(a, b, bootstrap=40, scores=["auroc", "nll"])
    text = printed(comparison_table(found))
    nll = found["joint"]["nll"]
    form = Quantity(nll.difference, nll.low, nll.high).form()
    assert f" {form(nll.a)} " in text
    assert ("+" if nll.difference > 0 else "−") + form(abs(nll.difference)) in text
    assert text.count("auroc") == len(found.sets)


def test_transfer_names_the_threshold_or_why_there_is_none():
    held = rb.Predictions(
        ["a", "b", "c", "d"], [0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2
    )
    found = rb.transfer(held, "accuracy", 1.0, bootstrap=20)
    text = " ".join(printed(transfer_summary(found)).split())
    assert f"refer above an uncertainty of {found.threshold:.4g}" in text
    refused = rb.transfer(held, "selective_risk", 0.01, delta=0.05, bootstrap=20)
    assert refused.threshold is None
    assert "Refused: no threshold is certified. " in " ".join(printed(transfer_summary(refused)).split())


PREDICTIONS = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])


def test_one_file_is_its_scores_and_several_are_a_list():
    found = rb.score(PREDICTIONS, bootstrap=0)
    alone = scores_json([found], ["x"])
    assert alone == {**found.to_dict(), "entry": "x"}
    both = scores_json([found, found], ["x", "y"])
    assert [one["entry"] for one in both["files"]] == ["x", "y"]
    assert both["schema"] == "retinabench.scores-list/1"


def test_each_row_of_the_csv_is_a_score_and_undefined_numbers_are_empty():
    found = rb.score(PREDICTIONS, bootstrap=0)
    rows = list(csv.DictReader(io.StringIO(scores_csv([found], ["=x"]).decode())))
    assert [(row["set"], row["score"]) for row in rows] == [
        (name, score) for name, one in found.sets.items() for score in one.scores
    ]
    auroc = next(row for row in rows if row["score"] == "auroc")
    assert (auroc["entry"], auroc["value"], auroc["low"]) == ("'=x", "0.75", "")
    assert auroc["version"] == str(found["in_domain"].auroc.version)
