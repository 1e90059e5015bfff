"""The result of an examination: numbers against its record, and the notes that limit them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.examination import SCHEMA
from retinabench.concepts.questioning.loop import examine
from support.concept_banks import make_answers, make_bank


@pytest.fixture(scope="module")
def found():
    bank = make_bank()
    claim = "sensitivity of haemorrhage >= 0.5"
    return examine(bank, make_answers(bank), strategy="precision", questions=120, claim=claim)


def test_a_concept_is_counted_from_its_questions(found):
    one, place = found["haemorrhage"], 1
    _, truth, prob = found.record.about(place)
    yes = prob > 0.5
    assert one.counts == {
        "tn": int((~yes & (truth == 0)).sum()), "fp": int((yes & (truth == 0)).sum()),
        "fn": int((~yes & (truth == 1)).sum()), "tp": int((yes & (truth == 1)).sum()),
    }  # fmt: skip
    assert one.bins.sum() == len(prob)
    assert one.sensitivity.value == one.counts["tp"] / (one.counts["tp"] + one.counts["fn"])
    assert one.sensitivity.of == found.bank.cells[place, 1]
    assert one.auroc.value > 0.5
    assert found.rates == 8


def test_the_content_is_plain_json(found):
    content = found.to_dict()
    assert json.loads(json.dumps(content)) == content
    assert content["schema"] == SCHEMA
    assert content["asked"] == len(found.record.prob) == len(content["progress"]["questions"]) - 1
    assert content["bank"]["positives"]["haemorrhage"] == found.bank.cells[1, 1]
    assert content["concepts"]["haemorrhage"]["auroc"] == found["haemorrhage"].auroc._asdict()
    assert content["error_control"] == {"alpha": 0.05, "rates": 8}
    assert content["claims"][0]["registered"]


def test_notes_name_what_the_bank_cannot_say():
    truth = np.zeros((30, 2), np.int8)
    truth[:4, 0], truth[20:, 1] = 1, -1
    found = examine(Bank(None, "ab", truth, patient=np.arange(30) // 3), lambda *question: 0.2, questions=5)
    notes = " ".join(found.notes)
    for text in (
        "only 4 positive samples of 'a'",
        "no positive sample of 'b': nothing can be said of its sensitivity",
        "The truth of 'b' is unknown for 10 samples",
        "Patients have several samples",
    ):
        assert text in notes
    assert "selects samples" not in notes
    selecting = examine(make_bank(), lambda *question: 0.2, strategy="unpredictability", questions=5)
    assert "selects samples by their other concepts" in " ".join(selecting.notes)
    saturated = examine(make_bank(), lambda *question: 0.2, strategy="uncertainty", questions=5)
    assert "is skipped while others are fresher" in " ".join(saturated.notes)
