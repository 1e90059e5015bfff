"""Batched summaries of how well an uncertainty orders the images, and numbers of those that remain after referral."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from retinabench.metrics.batched.batch import Batch, ratio
from retinabench.metrics.batched.curves import sensitivity_on_grid
from retinabench.metrics.selective import half_referred
from retinabench.metrics.selective.summaries import rc_grid
from retinabench.metrics.sorted_images import SLACK

Floats = NDArray[np.float64]


def aurc(batch: Batch) -> Floats:
    """(R,) `summaries.aurc_of`."""
    mass, wrong = batch.mass, batch.wrong
    risk = np.divide(wrong, mass, out=np.zeros_like(wrong), where=mass > 0)
    # Blocks without weight repeat the risk before them; before the first with weight its own risk is kept.
    first = np.argmax(mass > 0, axis=1)[:, None]
    risk = np.where(mass > 0, risk, np.take_along_axis(risk, first, axis=1))
    area: Floats = (np.diff(mass, axis=1) * (risk[:, 1:] + risk[:, :-1])).sum(axis=1)
    return area / (2 * batch.total)


def e_aurc(batch: Batch) -> Floats:
    """(R,) `summaries.e_aurc_of`."""
    err = batch.mean(batch.cases.error)
    right = np.maximum(1 - err, 0.0)
    return np.asarray(batch.derived(aurc) - (err + xlogy(right, right)))


def augrc(batch: Batch) -> Floats:
    """(R,) `summaries.augrc_of`."""
    return _wrong_before(batch) / batch.total**2


def failure_auroc(batch: Batch) -> Floats:
    """(R,) `summaries.failure_auroc_of`: of all pairs with a wrong prediction, those of two wrong ones are no comparison."""
    wrong = batch.wrong[:, -1]
    right = batch.mass[:, -1] - wrong
    return 1 - ratio(_wrong_before(batch) - wrong**2 / 2, wrong * right)


def prr(batch: Batch) -> Floats:
    """(R,) `summaries.prr_of`."""
    random = batch.mean(batch.cases.error) / 2
    possible = random - 2 * random**2
    return ratio(random - augrc(batch), np.where(possible > 1e-15, possible, 0.0))


def rc_index(batch: Batch) -> Floats:
    """(R,) `summaries.rc_index_of`."""
    x = rc_grid()
    retained = (1 - x) * batch.total[:, None]
    error = 1 - accurate(batch, retained)
    gain = error[:, :1] - error
    return np.asarray(np.einsum("rn,n->r", gain[:, 1:] + gain[:, :-1], np.diff(x)) / 2)


def accurate(batch: Batch, retained: Floats) -> Floats:
    """(R, M) accuracy of the retained for retained masses (R, M) in (0, W], blocks of ties shared evenly."""
    mass, wrong = batch.mass, batch.wrong
    reached = retained - SLACK * batch.total[:, None]
    block = np.stack([np.searchsorted(*row) for row in zip(mass, reached, strict=True)]) - 1
    block = np.clip(block, 0, mass.shape[1] - 2)
    before, after = (np.take_along_axis(mass, block + k, axis=1) for k in (0, 1))
    first, last = (np.take_along_axis(wrong, block + k, axis=1) for k in (0, 1))
    open_ = after - retained > SLACK * batch.total[:, None]
    fraction = np.divide(retained - before, after - before, out=np.ones_like(retained), where=open_)
    return 1 - (first + np.clip(fraction, 0.0, 1.0) * (last - first)) / retained


def _wrong_before(batch: Batch) -> Floats:
    """(R,) pairs of an image and a wrong prediction that is not more uncertain, those of one block counting half."""
    pairs = np.diff(batch.mass, axis=1) * (batch.wrong[:, 1:] + batch.wrong[:, :-1])
    return np.asarray(pairs.sum(axis=1) / 2)


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
