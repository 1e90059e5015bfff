"""AUROC at every referral count of large sets, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from retinabench.metrics import sorted_images
from retinabench.metrics.score import referral_curve
from retinabench.metrics.selective import incremental_auroc, pair_steps
from retinabench.metrics.selective.incremental_auroc import Pairs
from retinabench.metrics.selective.referral_curves import curve_of
from retinabench.metrics.sorted_images import Cases
from support.shared_inputs import big


@pytest.mark.parametrize("uncertainty", ["entropy", "free", "ties"])
def test_auroc_at_any_count_of_an_eyepacs_sized_set(uncertainty):
    y, p, rng = big(42_670)
    u = {"entropy": -np.abs(p - 0.5), "free": rng.random(len(y)), "ties": np.round(rng.random(len(y)), 3)}[
        uncertainty
    ]
    curve = referral_curve(y, p, u, "auroc")
    assert len(curve.value) == len(y)
    order = np.argsort(u, kind="stable")
    blocks = np.append(np.flatnonzero(np.diff(u[order])), len(u) - 1) + 1
    for retained in rng.choice(blocks[blocks > 100], 12, replace=False):
        kept = order[:retained]
        truth = metrics.roc_auc_score(y[kept], p[kept])
        assert abs(curve.value[len(y) - retained] - truth) < 1e-12


@pytest.mark.parametrize("uncertainty", ["entropy", "free", "ties"])
def test_auroc_of_a_large_balanced_set(uncertainty):
    """Fractional weights on many images: cumulated sums must not lose what the pairs add."""
    y, p, rng = big(20_000, seed=2)
    u = {"entropy": -np.abs(p - 0.5), "free": rng.random(len(y)), "ties": np.round(rng.random(len(y)), 2)}[
        uncertainty
    ]
    w = np.where(rng.random(len(y)) < 0.07, 13.2857, 1.0)
    cases = Cases(y, p, u)
    weighted = cases.weighted(w)
    value = curve_of(weighted, "auroc").value[::-1]
    for mass in rng.choice(weighted.mass[100:], 8):
        kept = u <= cases.uncertainty[cases.ends[np.searchsorted(weighted.mass, mass) - 1]]
        block, fraction = weighted.locate(np.array([mass]))
        assert fraction[0] == 1
        truth = metrics.roc_auc_score(y[kept], p[kept], sample_weight=w[kept])
        total, _ = cases.index(Pairs).cumulate(weighted.weight)
        here = total[block[0] + 1] / (w[kept] @ (y[kept] == 1) * (w[kept] @ (y[kept] == 0)))
        assert here == pytest.approx(truth, abs=1e-12)
    assert len(value) == round(w.sum())


@pytest.mark.parametrize("ties", [None, 1])
def test_levels_that_are_passed_through_give_the_bits_of_those_that_are_kept(ties, monkeypatch):
    y, p, rng = big(3_000, seed=3)
    p = p if ties is None else p.round(ties)
    u, w = rng.random(len(y)).round(3), rng.integers(0, 4, len(y)) * 0.7
    kept = Pairs(Cases(y, p, u)).cumulate(w)
    monkeypatch.setattr(sorted_images, "MANY", 1000)
    for module in (incremental_auroc, pair_steps):
        monkeypatch.setattr(module, "MANY", 1000)
    monkeypatch.setattr(pair_steps, "PARTS", 2)
    pairs = Pairs(Cases(y, p, u))
    assert Cases(y, p, u).order.dtype == np.int32
    for _ in range(2):  # passed through, then kept
        for found, expected in zip(pairs.cumulate(w), kept, strict=True):
            assert (found == expected).all()
    assert "steps" in vars(pairs)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_few_blocks_are_ranked_anew_with_the_same_bits(blocks, monkeypatch):
    y, p, rng = big(3_000, seed=4)
    p, u, w = p.round(2), rng.integers(0, blocks, len(y)), rng.integers(0, 3, len(y)).astype(float)
    few = Pairs(Cases(y, p, u)).cumulate(w)
    monkeypatch.setattr(incremental_auroc, "FEW_BLOCKS", 0)
    for found, expected in zip(few, Pairs(Cases(y, p, u)).cumulate(w), strict=True):
        assert (found == expected).all()
