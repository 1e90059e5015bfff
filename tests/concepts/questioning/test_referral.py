"""Answers beside the main decision: shares by formula, and the coverage of the difference at equal grade."""

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.referral import agreement, decisions
from retinabench.core.errors import InputError
from retinabench.metrics.decisions import FrozenThreshold
from retinabench.metrics.proportions import clustered_proportion
from retinabench.predictions.table import Predictions


def drawn_of_referral(seed, patients=60, effect=0.3):
    """A bank of two images per patient, answers, and referrals that follow grade and answer."""
    random = np.random.default_rng(seed)
    n = 2 * patients
    grade = np.repeat(random.integers(0, 5, patients), 2).astype(np.int8)
    truth = (random.random((n, 2)) < (0.1 + 0.18 * grade)[:, None]).astype(np.int8)
    yes = (random.random((n, 2)) < 0.85) == (truth == 1)
    habit = np.repeat(random.uniform(-0.1, 0.1, patients), 2)  # the eyes of a patient are referred alike
    refers = random.random(n) < 0.1 + 0.1 * grade + effect * yes[:, 0] + habit
    names = [f"i{k}" for k in range(n)]
    bank = Bank(names, ("a", "b"), truth)
    predictions = Predictions(
        names, (grade >= 2).astype(np.int8), np.where(refers, 0.8, 0.2), grade=grade,
        patient_id=np.repeat([f"p{k}" for k in range(patients)], 2),
    )  # fmt: skip
    return bank, Answers(bank, np.where(yes, 0.9, 0.1)), predictions, yes, refers, grade


def test_shares_are_those_of_the_images_when_all_were_asked():
    bank, answers, predictions, yes, refers, grade = drawn_of_referral(0)
    found = agreement(bank, examine(bank, answers).record, decisions(bank, predictions, FrozenThreshold()))
    assert (found.images, found.missing) == (120, 0)
    one = found.concepts["a"]
    assert one.agreement.value == pytest.approx(np.mean(yes[:, 0] == refers))
    assert one.refers_if_yes.value == pytest.approx(refers[yes[:, 0]].mean())
    assert one.refers_if_no.images == (~yes[:, 0]).sum()
    at_three = grade == 3
    assert one.grades["3"].agreement.value == pytest.approx(np.mean((yes[:, 0] == refers)[at_three]))
    expected = clustered_proportion(refers[yes[:, 0]], np.ones(yes[:, 0].sum()), np.arange(120)[yes[:, 0]] // 2)
    assert (one.refers_if_yes.low, one.refers_if_yes.high) == pytest.approx((expected.low, expected.high))
    some = yes.any(axis=1)
    assert found.named.images == 120
    assert found.named.overall.referred.value == pytest.approx(some[refers].mean())
    assert found.named.grades["0"].not_referred.images == (~refers & (grade == 0)).sum()
    # Mantel and Haenszel's difference of risks, by its formula.
    top = bottom = 0.0
    for g in range(5):
        p, q = (refers[(grade == g) & (yes[:, 0] == said)] for said in (True, False))
        weight = len(p) * len(q) / (len(p) + len(q))
        top, bottom = top + weight * (p.mean() - q.mean()), bottom + weight
    assert one.at_equal_grade.value == pytest.approx(top / bottom)
    assert one.at_equal_grade.low < top / bottom < one.at_equal_grade.high


def test_images_of_a_cell_stand_for_those_that_were_not_asked():
    bank, answers, predictions, yes, refers, _ = drawn_of_referral(1)
    record = examine(bank, answers, questions=80, strategy="precision").record
    found = agreement(bank, record, decisions(bank, predictions, FrozenThreshold())).concepts["a"]
    sample, truth, _ = record.about(0)
    cell = bank.cells[0]
    by_cell = [np.mean((yes[:, 0] == refers)[sample[truth == sign]]) for sign in (0, 1)]
    assert found.agreement.value == pytest.approx(cell @ by_cell / cell.sum())
    assert found.images == len(sample) < 120


def test_what_is_not_known_is_said():
    bank, answers, predictions, *_ = drawn_of_referral(2)
    ungraded = Predictions(predictions.image_id[:90], predictions.label[:90], predictions.prob[:90])
    found = agreement(bank, examine(bank, answers).record, decisions(bank, ungraded, FrozenThreshold(0.2)))
    assert (found.images, found.missing) == (90, 30)
    one = found.concepts["b"]
    assert one.grades == {}
    assert one.at_equal_grade.why == "no grade is known"
    assert one.refers_if_no.value == 1.0  # every image is at 0.2 or above
    nothing = agreement(bank, examine(bank, answers, questions=1).record, decisions(bank, ungraded, FrozenThreshold()))
    assert nothing.named.images == 0
    assert nothing.to_dict()["named"]["referred"]["value"] is None
    other = Predictions(["x"], [0], [0.5])
    with pytest.raises(InputError, match=r"none of the bank's images. The bank has for example 'i0'"):
        decisions(bank, other, FrozenThreshold())


def test_the_difference_at_equal_grade_is_covered():
    """50 studies of 60 patients with a difference of 0.3: at 95 %, 47.5 hold it; standard deviation 1.5."""
    held = 0
    for seed in range(50):
        bank, answers, predictions, *_ = drawn_of_referral([3, seed])
        record = examine(bank, answers, questions=200, seed=seed).record
        one = agreement(bank, record, decisions(bank, predictions, FrozenThreshold())).concepts["a"].at_equal_grade
        held += one.low <= 0.3 <= one.high
    assert held >= 47.5 - 3 * 1.5
