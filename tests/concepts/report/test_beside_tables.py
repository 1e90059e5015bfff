"""The tables of concept answers against other readers and the main decision."""

from __future__ import annotations

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.readers import ReaderPanel, majority
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.reference import enter_readers
from retinabench.concepts.questioning.referral import agreement, decisions
from retinabench.concepts.report.beside_tables import readers_tables, referral_tables
from retinabench.concepts.report.concept_rates import ExaminationReport
from retinabench.concepts.report.page import render
from retinabench.metrics.clinical.decision_threshold import FrozenThreshold
from retinabench.predictions.table import Predictions
from support.examinees import CONCEPTS, examinee


def test_the_page_shows_the_shares(bank):
    result = examine(bank, examinee(bank))
    names = [bank.name(k) for k in range(120)]
    grade = (np.arange(120) % 3).astype(np.int8)
    predictions = Predictions(names, (grade >= 2).astype(np.int8), np.linspace(0, 1, 120), grade=grade)
    found = agreement(bank, result.record, decisions(bank, predictions, FrozenThreshold()))
    tables = referral_tables(found)
    assert [row.label for row in tables[0].blocks[0].rows] == list(CONCEPTS)
    assert [row.label for row in tables[1].blocks[0].rows] == ["0", "1", "2"]
    assert [row.label for row in tables[2].blocks[0].rows] == ["all", "0", "1", "2"]
    html = render(ExaminationReport(result, referral=found))
    assert "of 120 images are compared with its answers." in " ".join(html.split())
    assert 'href="#referral"' in html
    assert 'id="referral"' not in render(ExaminationReport(result))


def test_the_page_shows_the_readers():
    random = np.random.default_rng(0)
    votes = (random.random((90, 2, 3)) < 0.5).astype(np.int8)
    bank = Bank(None, ("a", "b"), majority(votes))
    result = examine(bank, lambda sample, concept: float(bank.truth[sample, 0]), questions=60)
    found = enter_readers(result, ReaderPanel(("x", "y", "z"), votes, "majority"))
    sensitivity, specificity = readers_tables(found.readers)
    rows = ["x", "y", "z", "random reader", "without x", "without y", "without z"]
    assert [row.label for row in sensitivity.blocks[0].rows] == rows
    assert len(specificity.blocks[0].columns) == 2
    html = " ".join(render(ExaminationReport(found)).split())
    assert "3 readers read the images" in html
    assert "span those against the majority without any one reader" in html
