"""Every pair of a positive and an earlier negative image is met once, in gathers or one by one: against all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.metrics.selective.pair_steps import (
    NEAR,
    earlier_ties,
    halvings,
    inside_blocks,
    near_pairs,
    two_tails,
)


def met_by(steps, weight):
    met = np.zeros_like(weight)
    for step in steps:
        step.add_to(met, weight)
    return met


@pytest.fixture
def drawn():
    random = np.random.default_rng(0)
    n = 3 * NEAR + 7
    return random.random(n) < 0.4, random.random(n).round(2), random.random(n)


def test_halvings_and_near_pairs_meet_all_pairs(drawn):
    label, prob, weight = drawn
    earlier = np.tri(len(prob), k=-1, dtype=bool) & (label[:, None] != label)
    above = np.where(label[:, None], prob[:, None] >= prob, prob[:, None] <= prob)
    met = met_by(halvings(label, prob), weight)
    for part, target, source in near_pairs(label, prob):
        np.add.at(met[part], target, weight[part][source])
    assert met == pytest.approx((earlier & above) @ weight)
    ties = earlier & (prob[:, None] == prob)
    assert met_by(earlier_ties(label, prob), weight) == pytest.approx(ties @ weight)


def test_tails_and_blocks(drawn):
    label, prob, weight = drawn
    order = np.argsort(-np.abs(prob - 0.503), kind="stable")
    y, p, w = label[order], prob[order], weight[order]
    lower = p < p[-1]
    earlier = np.tri(len(p), k=-1, dtype=bool)
    counted = np.where(y[:, None], lower & ~y, ~lower & y)
    assert met_by(two_tails(y, lower), w) == pytest.approx((earlier & counted) @ w)
    ends = np.append(np.arange(9, len(p) - 1, 10), len(p) - 1)
    below, block, tied = inside_blocks(y, p, ends)
    assert (block == np.searchsorted(ends, below.target)).all()
    same = np.searchsorted(ends, np.arange(len(p)))
    own = (same[:, None] == same) & ~y & y[:, None]
    assert met_by([below], w) == pytest.approx((own & (p[:, None] > p)) @ w)
    assert met_by([tied], w) == pytest.approx((own & (p[:, None] == p)) @ w)
