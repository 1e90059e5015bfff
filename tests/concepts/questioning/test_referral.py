"""Several readers as the truth: the strata by counting, and coverage against each truth that the readers leave possible."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import ReaderPanel, majority, random_reader
from retinabench.concepts.examinees import Answers
from retinabench.concepts.inference.claims import new_sequence
from retinabench.concepts.inference.rates import CellAnswers
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.referral import (
    AVERAGE,
    Strata,
    agreement,
    decisions,
    enter_readers,
    ranking_against,
)
from retinabench.concepts.questioning.transcript import Answered, Record
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.thresholds import FrozenThreshold
from retinabench.metrics.proportions import clustered_proportion
from retinabench.predictions.table import Predictions

READERS = ("r1", "r2", "r3", "r4", "r5")


def drawn(random, samples=150, truth="majority"):
    """Images of a hidden severity, five readers of different strictness, and an examinee that sees the severity with noise."""
    severity = random.random((samples, 2))
    strict = np.array([0.45, 0.5, 0.55, 0.6, 0.65])
    votes = (severity[:, :, None] + random.normal(0, 0.08, (samples, 2, 5)) > strict).astype(np.int8)
    yes = severity + random.normal(0, 0.15, (samples, 2)) > 0.55
    values = {"majority": majority(votes), "random": random_reader(votes, random)}.get(truth)
    if values is None:
        values = votes[:, :, READERS.index(truth)]
    bank = Bank(None, "ab", np.ascontiguousarray(values))
    return bank, Answers(bank, np.where(yes, 0.9, 0.1)), ReaderPanel(READERS, votes, truth), yes


def entered(bank, answers, panel, **options):
    found = examine(bank, answers, **options)
    return enter_readers(found, panel)


def rate_against(values, yes, sign):
    return np.mean(yes[values == sign] == sign)


def test_strata_join_what_was_asked_by_weight():
    truth = np.array([1] * 10 + [0] * 6 + [-1] * 2, np.int8)
    weight = np.array([1.0] * 6 + [0.5] * 4 + [0.5] * 2 + [0.0] * 4 + [1.0] * 2)
    asked = np.array([1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0], bool)
    right = np.arange(18) % 2 == 0
    bank = Bank(None, ["a"], truth[:, None])
    sample = np.flatnonzero(asked)
    made = Strata(Answered(bank, Record(), 0, True), truth, weight, sample, right[sample])
    total = 6 + 2 + 1 + 2
    assert made.unknown == pytest.approx(2 / total)
    assert {(round(share * total, 9), cell) for share, cell in made.cells} == {
        (6, CellAnswers(2, 3, 6)), (2, CellAnswers(1, 1, 4)), (1, CellAnswers(1, 2, 2)),
    }  # fmt: skip
    assert made.value is None  # of the images whose truth is not known, none was asked about
    low, high = made.bank(0.05)
    ends = [(share, cell.bank(0.05 / 3)) for share, cell in made.cells]
    assert low == pytest.approx(sum(share * end.low for share, end in ends))
    assert high == pytest.approx(sum(share * end.high for share, end in ends) + made.unknown)


def test_all_asked_every_reader_is_known_exactly():
    bank, answers, panel, yes = drawn(np.random.default_rng(0))
    found = entered(bank, answers, panel)
    for place, name in enumerate("ab"):
        told = found.readers.concepts[name]
        for measure, sign in (("sensitivity", 1), ("specificity", 0)):
            for k, reader in enumerate(READERS):
                expected = rate_against(panel.votes[:, place, k], yes[:, place], sign)
                one = told.against[measure][reader]
                assert (one.low, one.value, one.high) == pytest.approx((expected,) * 3)
            votes = panel.votes[:, place]
            expected = np.average((yes[:, [place]] == sign).repeat(5, 1), weights=votes == sign)
            assert told.against[measure][AVERAGE].value == pytest.approx(expected)
            # The interval of the majority spans the majorities that remain without one reader.
            one = getattr(found[name], measure)
            assert one.low <= one.value <= one.high
            possible = [majority(np.delete(votes[:, None], k, axis=2))[:, 0] for k in range(5)]
            certain = [rate_against(values, yes[:, place], sign) for values in possible]
            assert one.low <= min(certain)
            assert one.high >= max(certain)
            # So does that of the accuracy.
            agree = [np.mean(yes[:, place] == (values == 1), where=values >= 0) for values in possible]
            accuracy = found[name].accuracy
            assert accuracy.low <= min(agree) + 1e-12
            assert accuracy.high >= max(agree) - 1e-12
        assert told.disputed == ((votes.max(axis=1)) != votes.min(axis=1)).sum()


def test_another_truth_compares_the_strata_that_it_makes():
    """Two disputed samples of each kind: with 2, 1 and 3 samples of a stratum, the weights are products of their shares."""
    truth = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int8)
    other = np.array([0, 0, 0, 1, 1, 1, -1, 0], np.int8)
    bank = Bank(None, ["a"], truth[:, None])
    found = examine(bank, Answers(bank, np.array([0.1, 0.2, 0.3, 0.9, 0.8, 0.7, 0.6, 0.4])[:, None]))
    ends = [new_sequence(pairs, pairs, 0.05 / 4) for pairs in (1, 2, 1, 1)]  # all ranked rightly
    shares = np.array([3 * 1, 3 * 2, 1 * 1, 1 * 2]) / 12  # without x with: 3 and 1, 1 and 2 of each truth of the bank
    got = ranking_against(found, 0, other)
    assert got.low == pytest.approx(sum(share * end.low for share, end in zip(shares, ends, strict=True)))
    assert got.high == 1


def test_without_disagreement_nothing_changes():
    random = np.random.default_rng(1)
    votes = np.repeat((random.random((80, 1, 1)) < 0.4).astype(np.int8), 3, axis=2)
    bank = Bank(None, ["a"], np.ascontiguousarray(votes[:, :, 0]))
    examinee = Answers(bank, random.random((80, 1)))
    plain = examine(bank, examinee, questions=40)
    found = entered(bank, examinee, ReaderPanel(("x", "y", "z"), votes, "majority"), questions=40)
    assert found.to_dict()["concepts"] == plain.to_dict()["concepts"]
    assert found.readers.concepts["a"].disputed == 0


@pytest.mark.parametrize("truth", ["majority", "random", "r2"])
def test_intervals_hold_against_each_possible_truth(truth):
    """40 examinations that stop when the answers say so: of each kind of interval at most 5 % may miss.

    The majority: 4 rates, 160 intervals, at most 8 (2.8) may miss each of the six possible majorities, and every reader. A random
    reader of new images: the rate over 200,000 images, standard error below 0.002.
    """
    random = np.random.default_rng(99)
    _, _, panel, yes = drawn(random, 100_000)
    reading = panel.votes[np.arange(100_000), :, random.integers(0, 5, 100_000)]
    population = {(k, s): rate_against(reading[:, k], yes[:, k], s) for k in (0, 1) for s in (0, 1)}
    truths = panel.others() | {"itself": majority(panel.votes)}
    aurocs = [
        {key: np.mean([rate_against(values[:, k], yes[:, k], s) for s in (0, 1)]) for key, values in truths.items()}
        for k in (0, 1)
    ]  # of answers of two values, the AUROC is the mean of sensitivity and specificity
    missed: dict[str, int] = {}
    for number in range(40):
        bank, answers, panel, yes = drawn(np.random.default_rng([5, number]), truth=truth)
        found = entered(bank, answers, panel, strategy="uncertainty", patience=15, seed=number)
        others = panel.others() | {"itself": bank.truth}
        for place, name in enumerate("ab"):
            told = found.readers.concepts[name].against
            for measure, sign in (("sensitivity", 1), ("specificity", 0)):
                ends = getattr(found[name], measure)
                if truth == "majority" and sign:
                    all_right = found[name].accuracy
                    for values in others.values():
                        known = values[:, place] >= 0
                        p = np.mean(yes[known, place] == values[known, place])
                        missed["accuracy"] = missed.get("accuracy", 0) + (
                            not all_right.low - 1e-9 <= p <= all_right.high + 1e-9
                        )
                    area = found[name].auroc
                    for key, p in aurocs[place].items():
                        kind = f"AUROC against {key}"
                        missed[kind] = missed.get(kind, 0) + (not area.low <= p <= area.high)
                for key, values in others.items():
                    if truth == "majority" or key == "itself":
                        p = rate_against(values[:, place], yes[:, place], sign)
                        missed[key] = missed.get(key, 0) + (not ends.low - 1e-9 <= p <= ends.high + 1e-9)
                for k, reader in enumerate(READERS):
                    p, one = (rate_against(panel.votes[:, place, k], yes[:, place], sign), told[measure][reader])
                    missed[reader] = missed.get(reader, 0) + (not one.low - 1e-9 <= p <= one.high + 1e-9)
                if truth == "random":
                    low, high = ends.new
                    missed["population"] = missed.get("population", 0) + (not low <= population[place, sign] <= high)
    assert max(missed.values()) <= 8 + 2 * 2.8


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
