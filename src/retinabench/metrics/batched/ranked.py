"""Batched AUROC and average precision, of the probability and of the uncertainty as a detector of shifted images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched.batch import Batch, cumulate, ratio
from retinabench.metrics.sorted_images import Cases

Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]


def auroc(batch: Batch) -> Floats:
    """(R,) `classification.auroc_of`."""
    classes = batch.cases.index(_classes)
    hit = cumulate(np.take(batch.by_prob, classes.positive, axis=1))
    pairs = np.take(hit, classes.above, axis=1)
    pairs += np.take(hit, classes.through, axis=1)
    pairs *= np.take(batch.by_prob, classes.negative, axis=1)
    return ratio(pairs.sum(axis=1) / 2, batch.positives * batch.negatives)


def auprc(batch: Batch) -> Floats:
    """(R,) `classification.auprc_of`."""
    classes = batch.cases.index(_classes)
    hit = np.take(cumulate(np.take(batch.by_prob, classes.positive, axis=1)), classes.step, axis=1)
    called = np.take(cumulate(batch.by_prob), classes.called, axis=1)
    gain = np.diff(hit, axis=1, prepend=0.0)
    precision = np.divide(hit, called, out=np.zeros_like(hit), where=called > 0)
    return ratio((gain * precision).sum(axis=1), batch.positives)


def ood_auroc(batch: Batch) -> Floats:
    """(R,) `shift.ood_auroc_of`."""
    shifted = _shifted(batch)
    near = batch.mass - shifted
    pairs = np.diff(shifted, axis=1) * (near[:, 1:] + near[:, :-1])
    return ratio(pairs.sum(axis=1) / 2, shifted[:, -1] * near[:, -1])


def ood_auprc(batch: Batch) -> Floats:
    """(R,) `shift.ood_auprc_of`."""
    shifted = _shifted(batch)
    hit = shifted[:, -1:] - shifted[:, :-1]
    called = batch.mass[:, -1:] - batch.mass[:, :-1]
    precision = np.divide(hit, called, out=np.zeros_like(hit), where=called > 0)
    return ratio((np.diff(shifted, axis=1) * precision).sum(axis=1), shifted[:, -1])


def _shifted(batch: Batch) -> Floats:
    """(R, B+1) mass of shifted images in the blocks before; 0 outside joint sets."""
    if batch.cases.shifted is None:
        return np.zeros_like(batch.mass)
    return batch.block_sums(batch.weight * batch.cases.shifted)


@dataclass(frozen=True)
class _Classes:
    """Places in the order of falling probability, equal probabilities being one step.

    positive (P,) and negative: where the images of each class stand. above, through: for each negative image the number of
    positive ones above it, and with those tied to it. step, called: for each step with a positive image the number of positive ones, and of
    all images, down to its end.
    """

    positive: Index
    negative: Index
    above: Index
    through: Index
    step: Index
    called: Index


def _classes(cases: Cases) -> _Classes:
    ranking = cases.by_prob
    label = cases.label[ranking.order]
    starts = np.append(0, ranking.ends[:-1] + 1)
    group = np.repeat(np.arange(len(starts)), ranking.ends + 1 - starts)
    before = np.append(0, np.cumsum(label))
    first, last = before[starts], before[ranking.ends + 1]
    negative = np.flatnonzero(~label)
    held = last > first
    return _Classes(
        np.flatnonzero(label),
        negative,
        first[group[negative]],
        last[group[negative]],
        last[held],
        ranking.ends[held] + 1,
    )
