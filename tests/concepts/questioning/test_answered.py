"""What rates and rankings count, against counting by hand."""

from __future__ import annotations

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.rates import CellAnswers
from retinabench.concepts.questioning.answered import Answered
from retinabench.concepts.questioning.loop import examine
from support.concept_banks import make_answers, make_bank


def test_a_cell_counts_all_samples_and_one_of_each_patient():
    bank = make_bank(80)
    eyes = Bank(None, bank.concepts, bank.truth, patient=[f"p{k // 2}" for k in range(80)])
    answers = make_answers(bank)
    found = examine(eyes, answers, questions=150)
    plain = examine(bank, answers, questions=150)
    assert plain.record == found.record  # patients change no question
    assert plain.answered.patients is None
    for place in range(4):
        sample, truth, prob = found.record.about(place)
        for sign in (0, 1):
            right = (prob > 0.5) == sign
            asked = sample[truth == sign].tolist()
            cell = found.answered.cell(place, sign)
            members = np.flatnonzero(bank.truth[:, place] == sign)
            assert (cell.right, cell.asked, cell.of) == (
                int(right[truth == sign].sum()), len(asked), len(members),
            )  # fmt: skip
            assert plain.answered.cell(place, sign) == CellAnswers(cell.right, cell.asked, cell.of)
            counted = found.answered.patients.counted(bank.truth[:, place] == sign)
            if counted is None:
                assert cell.patients is None
                continue
            mine = [one for one in asked if one in counted]
            said = {int(s): bool(r) for s, r in zip(sample, right, strict=True)}
            assert cell.patients == (sum(said[one] for one in mine), len(mine), len(set(members // 2)))


def test_a_ranking_compares_the_answers_in_the_order_of_the_questions():
    bank = make_bank(60)
    found = examine(bank, make_answers(bank), questions=120)
    _, truth, prob = found.record.about(1)
    without, having = prob[truth == 0], prob[truth == 1]
    pairs = min(len(without), len(having))
    one = found.answered.ranking(1)
    assert one.pairs == pairs
    assert one.low <= (having[:pairs] > without[:pairs]).mean() <= one.high


def test_selected_samples_rank_only_once_all_were_asked():
    bank = make_bank(40)
    answers = make_answers(bank)
    part = examine(bank, answers, strategy="unpredictability", questions=60)
    assert part.answered.ranking(0)[1:] == (0.0, 1.0, 0)
    whole = examine(bank, answers, strategy="unpredictability")
    known = np.flatnonzero(bank.truth[:, 0] >= 0)
    truth = bank.truth[known, 0]
    prob = np.array([answers(int(k), bank.concepts[0]) for k in known])
    assert whole.answered.ranking(0).pairs == min((truth == 1).sum(), (truth == 0).sum())
    again = Answered(bank, whole.record, 0, True).ranking(0)
    assert again.value == whole.answered.ranking(0).value
    assert len(prob) == 40
