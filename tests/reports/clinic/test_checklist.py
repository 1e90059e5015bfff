"""The reporting checklist: answered where the file answers, left to the authors where it cannot."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.reports.clinic.checklist import AUTHORS, checklist, checklist_table
from support.screened import screened


@pytest.fixture(scope="module")
def rich():
    return {
        item.topic: item
        for item in checklist(rb.clinic(screened(60), "youden@validation", referral_rate=0.2))
    }


@pytest.fixture(scope="module")
def plain():
    found = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    return {item.topic: item for item in checklist(rb.clinic(found))}


def test_a_file_with_columns_answers_more(rich, plain):
    questions = {
        "Variability and fairness: subgroups": ("age, camera", "no further columns"),
        "Indeterminate or missing results": ("counted as referred", "no ungradable images"),
        "Severity of the disease": ("grade 3 or 4", "no grades in the file"),
        "Uncertainty of the estimates": ("clustered by patient", "taken as independent"),
        "Model output and how its threshold was chosen": (
            "youden on the validation split",
            "given beforehand",
        ),
    }
    for topic, (known, unknown) in questions.items():
        assert all(word in rich[topic].answer for word in known.split(", ")), topic
        assert unknown in plain[topic].answer, topic
    assert "shifted set" in rich["Data from another source"].answer
    assert plain["Data from another source"].answer == AUTHORS


def test_the_cross_tabulation_is_counted_by_hand(plain):
    answer = plain["Cross tabulation against the reference"].answer
    assert answer.startswith("1 true positive, 1 false positive, 1 false negative, 1 true negative")
    assert plain["Failures, case by case"].answer == "1 missed images listed by id"


def test_the_table_mutes_what_is_left_to_the_authors(plain):
    table = checklist_table(list(plain.values()))
    [block] = table.blocks
    muted = [row.label for row in block.rows if row.control]
    assert "Limitations" in muted
    assert "Cross tabulation against the reference" not in muted
    numbers = {row.label: row.cells[1].content for row in block.rows}
    assert numbers["Data from another source"] == "CLAIM 32"
    assert numbers["Measures of performance"] == "STARD 14; TRIPOD+AI 12e; CLAIM 28"
    assert np.mean([row.control for row in block.rows]) < 0.6
