"""The clinic's tables, from images that can be counted."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.reports.clinic.answer import answer_sets
from retinabench.reports.clinic.tables import (
    counts_table,
    missed_table,
    predictive_table,
    rates_table,
    ungradable_table,
)


def images(**columns):
    """100 patients with two images: 40 referable ones, of which 10 are missed, and 160 others, of which 16 are called."""
    label = np.repeat(np.arange(100) < 20, 2)
    prob = np.where(label, 0.9, 0.1)
    prob[:10], prob[40:56] = 0.2, 0.8
    patient = np.repeat(np.arange(100), 2)
    return rb.Predictions([f"i{k}" for k in range(200)], label, prob, patient_id=patient, **columns)


@pytest.fixture(scope="module")
def screening():
    report = rb.clinic(images(grade=np.where(np.arange(200) < 40, 3, 0)))
    return report, answer_sets(report)[0]


def cells(table):
    return {row.label: [cell.content for cell in row.cells] for block in table.blocks for row in block.rows}


def test_sensitivity_and_specificity_of_the_model_alone(screening):
    report, answer = screening
    found = cells(rates_table(answer, report))["Model alone, per image"]
    assert [found[0].value, found[1].value] == pytest.approx([30 / 40, 144 / 160])
    assert found[2] == "not met"
    per_patient = cells(rates_table(answer, report))["Model alone, per patient (any eye)"]
    assert [per_patient[0].value, per_patient[1].value] == pytest.approx([15 / 20, 72 / 80])


def test_predictive_values_follow_from_the_prevalence(screening):
    """PPV = p Se / (p Se + (1 - p)(1 - Sp)) with Se = 0.75, Sp = 0.9 and p = 0.1."""
    found = cells(predictive_table(screening[1]))["10 %"]
    assert found[0].value == pytest.approx(0.075 / (0.075 + 0.09))
    assert found[1].value == pytest.approx(0.81 / (0.81 + 0.025))


def test_images_patients_and_cases_are_counted(screening):
    assert cells(counts_table([screening[1]]))["In-domain"] == ["200", "100", "40 (20 %)", "40", "0"]
    plain = answer_sets(rb.clinic(rb.Predictions(["a", "b"], [0, 1], [0.2, 0.7])))
    assert cells(counts_table(plain))["In-domain"] == ["2", "not given", "1 (50 %)", "no grades", "0"]


def test_missed_images_have_the_columns_that_the_file_has(screening):
    report, answer = screening
    shown = report["in_domain"].missed.images
    table = missed_table(answer, shown)
    assert [one.label for one in table.blocks[0].columns] == [
        "Patient",
        "Grade",
        "P(referable)",
        "Uncertainty",
    ]
    assert len(table.blocks[0].rows) == 10
    assert {row.cells[1].emphasis for row in table.blocks[0].rows} == {"bad"}  # grade 3


def test_ungradable_images_change_the_rates_where_they_are_referred():
    assert ungradable_table(answer_sets(rb.clinic(images()))[0]) is None
    gradable = np.ones(200)
    gradable[:4] = 0  # four missed referable images
    found = answer_sets(rb.clinic(images(subgroups={"gradable": gradable})))[0]
    rates = cells(ungradable_table(found))
    assert rates["Ungradable images left out"][0].value == pytest.approx(30 / 36)
    assert rates["Ungradable images count as referred"][0].value == pytest.approx(34 / 40)
