"""Batched numbers of the images that remain when the most uncertain are referred."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched.batch import Batch, cumulate, ratio
from retinabench.metrics.sorted_images import SLACK

Floats = NDArray[np.float64]


def numbers_at(batch: Batch, referred: float, specificity: float) -> Floats:
    """Return (R, K) `half_referred.numbers`, row by row.

    Args:
        batch: R weightings of N images.
        referred: At least this share is referred.
        specificity: At which the sensitivity of all images is given.
    """
    cases, weight = batch.cases, batch.weight
    half = ((1 - referred) * batch.count + 1e-9).astype(np.intp)
    kept = half * batch.step
    at = _Place(batch, np.maximum(half, 1), kept)
    wrong, positives = at.retained(batch.wrong), at.retained(batch.positive)
    found = at.retained(batch.block_sums(weight * (cases.label & cases.called)))
    passed = at.retained(batch.block_sums(weight * ~(cases.label | cases.called)))
    accuracy, sensitivity = ratio(kept - wrong, kept), ratio(found, positives)
    overall = 1 - batch.wrong[:, -1] / batch.total
    perfect = np.minimum(1.0, overall * batch.count / np.maximum(half, 1))
    missed = np.where(positives > 0, (1 - sensitivity) * positives, 0.0)
    values = np.stack(
        [
            accuracy,
            accuracy - overall,
            ratio(accuracy - overall, perfect - overall),
            perfect,
            sensitivity,
            ratio(passed, at.retained(batch.mass) - positives),
            ratio(positives, kept),
            ratio(missed, batch.positives),
            _sensitivity_within(batch, 1 - specificity),
        ],
        axis=1,
    )
    values[half == 0] = np.nan
    return values


class _Place:
    """One point of the curves of every row: the block (R,) at it, and the fraction (R,) of that block which is retained."""

    def __init__(self, batch: Batch, point: NDArray[np.intp], kept: Floats) -> None:
        self.row = np.arange(len(point))
        self.block = np.minimum((batch.passed < point[:, None]).sum(axis=1) - 1, batch.passed.shape[1] - 2)
        before, after = batch.mass[self.row, self.block], batch.mass[self.row, self.block + 1]
        whole = after - kept <= SLACK * batch.total
        fraction = np.divide(kept - before, after - before, out=np.ones(len(kept)), where=~whole)
        self.fraction = np.clip(fraction, 0.0, 1.0)

    def retained(self, sums: Floats) -> Floats:
        """(R,) retained part of a mass, of which `sums` (R, B+1) is the sum over the blocks before."""
        before, after = sums[self.row, self.block], sums[self.row, self.block + 1]
        return np.asarray(before + self.fraction * (after - before))


def _sensitivity_within(batch: Batch, rate: float) -> Floats:
    """(R,) `classification.sensitivity_within` of one false-positive rate."""
    ranking = batch.cases.by_prob
    label, ends = batch.cases.label[ranking.order], np.append(0, ranking.ends + 1)
    negative = np.take(cumulate(batch.by_prob * ~label), ends, axis=1)
    positive = np.take(cumulate(batch.by_prob * label), ends, axis=1)
    both = (batch.positives > 0) & (batch.negatives > 0)
    false = negative / np.where(both, batch.negatives, 1.0)[:, None]
    last = (false <= rate + 1e-12).sum(axis=1) - 1
    hit = positive[np.arange(len(last)), last] / np.where(both, batch.positives, 1.0)
    return np.where(both, hit, np.nan)
