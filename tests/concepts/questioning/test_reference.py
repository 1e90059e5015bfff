"""Several readers as the truth: the strata by counting, and coverage against each truth that the readers leave possible."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.readers import ReaderPanel, majority, random_reader
from retinabench.concepts.examinees.answers import Answers
from retinabench.concepts.inference.confidence_sequences import new_sequence
from retinabench.concepts.inference.rates import CellAnswers
from retinabench.concepts.questioning.answered import Answered
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.record import Record
from retinabench.concepts.questioning.reference import AVERAGE, Strata, enter_readers, ranking_against

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
    shares = (
        np.array([3 * 1, 3 * 2, 1 * 1, 1 * 2]) / 12
    )  # without x with: 3 and 1, 1 and 2 of each truth of the bank
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
        {
            key: np.mean([rate_against(values[:, k], yes[:, k], s) for s in (0, 1)])
            for key, values in truths.items()
        }
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
                    p, one = (
                        rate_against(panel.votes[:, place, k], yes[:, place], sign),
                        told[measure][reader],
                    )
                    missed[reader] = missed.get(reader, 0) + (not one.low - 1e-9 <= p <= one.high + 1e-9)
                if truth == "random":
                    low, high = ends.new
                    missed["population"] = missed.get("population", 0) + (
                        not low <= population[place, sign] <= high
                    )
    assert max(missed.values()) <= 8 + 2 * 2.8
