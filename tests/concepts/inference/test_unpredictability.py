"""Unpredictability: golden values, and every choice of whole examinations by brute force over all questions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.unpredictability import Unpredictable
from support.concept_banks import make_bank


def by_hand(truth, sample, concept, asked):
    """(p, 1 - 2 |p - 1/2|) from the definition."""
    matching = np.all(truth[:, asked] == truth[sample, asked], axis=1)
    known = matching & (truth[:, concept] >= 0)
    p = truth[known, concept].mean()
    return p, 1 - 2 * abs(p - 0.5)


def test_golden_values(shared):
    golden = json.loads(shared("golden", "evaluation", "vtt_outputs.json").read_text())
    truth = np.array(golden["loop"]["gt"], np.int8)
    bank = Bank(None, "ab", truth)
    for case, (p, value) in golden["unpredictability"].items():
        sample, concept, asked = (json.loads(part.split("=")[1]) for part in case.split(",", 2))
        assert by_hand(truth, sample, concept, asked) == pytest.approx((p, value))
        assert Unpredictable(bank).value(truth[sample], asked)[concept] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("concepts", [3, 23])  # more than 20 are coded in two steps
@pytest.mark.parametrize("of_a_cell", [False, True])
def test_every_choice_by_brute_force(of_a_cell, concepts):
    random = np.random.default_rng(concepts)
    shared_by_all = random.random((14, 1)) < 0.5  # correlated concepts: some answers foretell others
    truth = ((random.random((14, concepts)) < 0.3) | shared_by_all).astype(np.int8)
    truth[random.random(truth.shape) < 0.1] = -1
    bank = Bank(None, [f"c{k}" for k in range(concepts)], truth)
    pool, asked = Unpredictable(bank), {k: [] for k in range(14)}
    for _ in range(int(bank.cells.sum())):
        left = [(s, c) for s in range(14) for c in range(concepts) if truth[s, c] >= 0 and c not in asked[s]]
        cell = None
        if of_a_cell:
            s, c = left[random.integers(len(left))]
            cell = (c, int(truth[s, c]))
            left = [(s, c) for s, c in left if (c, truth[s, c]) == cell]
        best = max(by_hand(truth, s, c, asked[s])[1] for s, c in left)
        sample, concept, sign = pool.draw(cell, random)
        assert (sample, concept) in left
        assert sign == truth[sample, concept]
        assert by_hand(truth, sample, concept, asked[sample])[1] == pytest.approx(best, abs=1e-9)
        asked[sample].append(concept)


def test_ties_are_drawn_evenly():
    # Two concepts with p = 1/2 in 8 samples of two patterns: 16 questions are equally unpredictable. 1,600 draws of a first
    # question: 100 expected of each, standard deviation 9.7; 5 of them are far beyond the largest of 16.
    truth = np.array([[0, 1]] * 4 + [[1, 0]] * 4, np.int8)
    random = np.random.default_rng(0)
    counts = np.zeros((8, 2))
    for _ in range(1600):
        sample, concept, _ = Unpredictable(Bank(None, "ab", truth)).draw(None, random)
        counts[sample, concept] += 1
    assert np.abs(counts - 100).max() < 5 * 9.7


def test_a_foretold_concept_is_asked_last():
    # b always equals a; c is a coin of its own: after a, asking b of the same sample tells nothing.
    random = np.random.default_rng(1)
    a, c = random.random(200) < 0.5, random.random(200) < 0.5
    bank = Bank(None, "abc", np.stack([a, a, c], axis=1).astype(np.int8))
    pool, asked = Unpredictable(bank), []
    for _ in range(600):
        sample, concept, _ = pool.draw(None, random)
        asked.append((sample, concept))
    both = [
        k for k, (sample, concept) in enumerate(asked) if concept < 2 and (sample, 1 - concept) in asked[:k]
    ]
    assert min(both) >= 400


def test_it_takes_no_list_per_sample():
    bank = make_bank(samples=20_000)
    pool = Unpredictable(bank)
    random = np.random.default_rng(0)
    for _ in range(50):
        pool.draw(None, random)
    assert pool.groups <= 16 + 50
