from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.facts import files_table, patients_tables, retained_tables, score_tables, sets_table
from retinabench.reports.toolkit.tables import Quantity


def image_table(right, total=400, **columns):
    """`total` images of both classes; of each class the share `right` is called rightly, with the largest certainty."""
    label = np.arange(total) % 2
    wrong = np.arange(total) // 2 >= round(right * total / 2)
    prob = np.where(wrong, 0.6 - 0.2 * label, 0.1 + 0.8 * label)
    return Predictions([f"i{k}" for k in range(total)], label, prob, **columns)


@pytest.fixture(scope="module")
def found():
    files = {"good": image_table(0.95), "poor": image_table(0.8)}
    return evaluate_methods(files, EvaluationSettings(bootstrap=0, referred=0.2))


def column(table, label):
    [block] = table.blocks
    [at] = [k for k, one in enumerate(block.columns) if one.label.startswith(label)]
    return {row.label: row.cells[at] for row in block.rows}


def test_methods_and_controls_stand_in_one_table_per_set(found):
    [table] = score_tables(found)
    accuracy = column(table, "Accuracy")
    assert list(accuracy)[:2] == ["good", "poor"]
    assert [accuracy[name].content.value for name in ("good", "poor")] == [0.95, 0.8]
    assert accuracy["always “not referable”"].content.value == 0.5
    assert all(row.control == (row.label not in ("good", "poor")) for row in table.blocks[0].rows)


def test_a_score_that_no_method_has_has_no_column(found):
    estimates = {key: Quantity(np.nan) if key[2] == "nll" else one for key, one in found.estimates.items()}
    [table] = score_tables(replace(found, estimates=estimates))
    assert not [one.label for one in table.blocks[0].columns if one.label.startswith("NLL")]
    assert column(score_tables(found)[0], "NLL")


def test_the_retained_are_those_that_are_left_at_the_share_referred(found):
    """With a fifth referred, all errors of both models (5 % and 20 %) are referred: no retained image is called wrongly."""
    [table] = retained_tables(found)
    assert "when 20 % are referred" in table.caption
    accuracy = table.blocks[0].columns[0].label
    cells = column(table, accuracy)
    assert [cells[name].content.value for name in ("good", "poor")] == [1.0, 1.0]
    assert cells["“good”, nothing referred"].content.value == 0.95


def test_sets_and_files_are_counted_and_named():
    file = image_table(0.9, 40, patient_id=np.arange(40) // 4, metadata={"method": "map", "seed": 3})
    found = evaluate_methods({"m": file}, EvaluationSettings(bootstrap=0))
    [row] = sets_table(found).blocks[0].rows
    assert [cell.content for cell in row.cells] == ["40", "10", "20 (50 %)"]
    table = files_table(found)
    heads = [one.label for one in table.blocks[0].columns]
    assert "Network" not in heads  # no file names one
    assert column(table, "Method as run")["m"].content == "map"
    assert column(table, "Seed")["m"].content == "3"


def test_patients_stand_beside_images():
    """Two seeds of one model, two eyes each; one file without patients has no such table. Against the engine of the scores."""
    rng = np.random.default_rng(2)
    label = np.repeat(rng.random(60) < 0.4, 2)
    ids, patient = np.arange(120).astype(str), np.repeat(np.arange(60), 2)
    prob, about = rng.random((2, 120)) * 0.6 + 0.4 * label, [{"seed": seed} for seed in range(2)]
    files = [Predictions(ids, label, prob[k], patient_id=patient, metadata=about[k]) for k in range(2)]

    def tables(found):
        return patients_tables(evaluate_methods({"m": found}, EvaluationSettings(bootstrap=0)))

    [one] = tables(files[0])
    assert "per patient (any eye)" in one.caption
    scores = rb.score(rb.by_patient(files[0]), bootstrap=20)["in_domain"]
    names = ("auroc", "accuracy", "sensitivity", "specificity")
    for cell, expected in zip(one.blocks[0].rows[0].cells, map(scores.__getitem__, names), strict=True):
        found = cell.content
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    [both] = tables(files)
    auroc, accuracy = (cell.content for cell in both.blocks[0].rows[0].cells[:2])
    assert np.isnan(auroc.low)
    assert accuracy.low < accuracy.value < accuracy.high
    assert not tables(replace(files[0], patient_id=None))
