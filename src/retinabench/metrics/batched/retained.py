"""Batched numbers of the images that remain when the most uncertain are referred."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched.batch import Batch, ratio
from retinabench.metrics.batched.curves import sensitivity_on_grid
from retinabench.metrics.selective import half_referred
from retinabench.metrics.sorted_images import SLACK

Floats = NDArray[np.float64]


def number_at(batch: Batch, name: str, referred: float = 0.5) -> Floats:
    """Return (R,) `half_referred.number`; the numbers of a share referred are computed together, once for a batch.

    Args:
        batch: R weightings.
        name: One of `half_referred.names`.
        referred: At least this share is referred.
    """
    return batch.derived(_numbers(referred))[:, half_referred.names(referred).index(name)]


@functools.cache
def _numbers(referred: float) -> Callable[[Batch], Floats]:
    return functools.partial(numbers_at, referred=referred, specificity=half_referred.SPECIFICITY)


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
            sensitivity_on_grid(batch, np.array([1 - specificity]))[:, 0],
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
