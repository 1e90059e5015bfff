"""The AUROC of answers: its value against scikit-learn's, its interval against the truth, at every number of pairs."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.inference.confidence_sequences import RateEnds, new_sequence
from retinabench.concepts.inference.ranking import ranking, sequence


def test_the_value_compares_all_answers():
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(0)
    without, having = random.random(30).round(2), random.random(12).round(2)
    found = ranking((without, having), (without, having))
    label = np.repeat([0, 1], [30, 12])
    assert found.value == pytest.approx(roc_auc_score(label, np.concatenate([without, having])), abs=1e-12)
    assert found.pairs == 12
    assert found._fields == ("value", "low", "high", "pairs")


def test_answers_closer_than_a_bin_keep_their_order():
    """Twelve answers within 0.02: the AUROC of bins would be 0.5."""
    answers = np.array([0.001 * k for k in range(8)]), np.array([0.0075, 0.009, 0.010, 0.012])
    assert ranking(answers, None).value == 1.0


def test_pairs_are_compared_in_their_order_and_ties_count_half():
    without, having = np.array([0.1, 0.5, 0.9, 0.2]), np.array([0.3, 0.5, 0.2])
    assert sequence(without, having) == (new_sequence(1.5, 3, 0.05), 3)
    assert sequence(without, np.array([])) == (RateEnds(0.0, 1.0), 0)


def test_nothing_is_said_where_a_kind_was_not_asked_about():
    nothing = np.array([])
    found = ranking((np.array([0.2]), nothing), (np.array([0.2]), nothing))
    assert found == (None, 0.0, 1.0, 0)
    assert ranking((np.array([0.2]), np.array([0.4])), None)[1:] == (0.0, 1.0, 0)


@pytest.mark.parametrize("levels", [2, 5])
def test_the_interval_holds_at_every_number_of_pairs(levels):
    """600 sequences of 120 pairs of answers with many ties: the worst moment may miss in 5 %, 30 (standard deviation 5.3)."""
    random = np.random.default_rng(levels)
    chances = random.dirichlet(np.ones(levels), 2)
    truth = sum(chances[1][j] * (chances[0][:j].sum() + chances[0][j] / 2) for j in range(levels))
    known, missed = {}, 0
    for _ in range(600):
        without, having = (random.choice(levels, 120, p=p) for p in chances)
        sums = ((1 + np.sign(having - without)) / 2).cumsum()
        for n, total in enumerate(sums.tolist(), 1):
            if (total, n) not in known:
                known[total, n] = new_sequence(total, n, 0.05)
            low, high = known[total, n]
            if not low <= truth <= high:
                missed += 1
                break
    assert missed <= 30 + 2 * 5.3
