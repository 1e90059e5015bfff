"""Batched summaries of how well an uncertainty tells right answers from wrong ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from retinabench.metrics.batched.batch import Batch, ratio
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
    """(R,) `summaries.failure_auroc_of`: of all pairs with a wrong answer, those of two wrong ones are no comparison."""
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
    """(R,) pairs of an image and a wrong answer that is not more uncertain, those of one block counting half."""
    pairs = np.diff(batch.mass, axis=1) * (batch.wrong[:, 1:] + batch.wrong[:, :-1])
    return np.asarray(pairs.sum(axis=1) / 2)
