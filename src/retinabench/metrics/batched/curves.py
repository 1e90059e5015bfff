"""Batched curves: what remains over a grid of the share referred, and the sensitivity over a grid of false-positive rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched.areas import points
from retinabench.metrics.batched.batch import Batch, cumulate, ratio
from retinabench.metrics.selective.incremental_auroc import Pairs
from retinabench.metrics.selective.referral_curves import MIN_CLASS

Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]


class _Retained(NamedTuple):
    """Some points of the curves, (R, M): block of each, and the retained fraction of that block."""

    block: Index
    fraction: Floats

    def of(self, sums: Floats) -> Floats:
        """(R, M) retained part of a mass, of which `sums` (R, B+1) is the sum over the blocks before."""
        before = np.take_along_axis(sums, self.block, axis=1)
        after = np.take_along_axis(sums, self.block + 1, axis=1)
        return np.asarray(before + self.fraction * (after - before))


def referral_on_grid(batch: Batch, grid: Floats, fewest: float) -> dict[str, Floats]:
    """Return accuracy, AUROC and NLL of the retained images, between two points of the curve linearly.

    Args:
        batch: R weightings of N images.
        grid: (G,) shares referred.
        fewest: Share of the images that must be retained, and ten of them.

    Returns:
        Name of the score -> (R, G), NaN where fewer images are retained, or for AUROC fewer than ten of a class.
    """
    asked = (1 - grid) * batch.total[:, None]
    number = np.clip((asked / batch.step[:, None]).astype(np.intp), 1, batch.count[:, None])
    # The quotient may round up to the next point, or down from the one that is asked for.
    number -= (number > 1) & (number * batch.step[:, None] > asked)
    number += (number < batch.count[:, None]) & ((number + 1) * batch.step[:, None] <= asked)
    following = np.minimum(number + 1, batch.count[:, None])
    sides = [_values(batch, chosen, fewest) for chosen in (number, following)]
    low, high = number * batch.step[:, None], following * batch.step[:, None]
    on_it = (asked == low) | (following == number)
    found = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, before in sides[0].items():
            between = (sides[1][name] - before) / (high - low) * (asked - low) + before
            found[name] = np.where(asked < low, np.nan, np.where(on_it, before, between))
    return found


def _values(batch: Batch, number: Index, fewest: float) -> dict[str, Floats]:
    """Accuracy, AUROC and NLL (R, M) at points of the curves, NaN where too few images are retained."""
    every = batch.derived(points)
    block = np.take_along_axis(every.block, number - 1, axis=1)
    fraction = np.take_along_axis(every.fraction, number - 1, axis=1)
    at = _Retained(block, fraction)
    kept = number * batch.step[:, None]
    positive = at.of(batch.positive)
    negative = at.of(batch.mass) - positive
    total, inside = batch.derived(_pairs)
    own = np.take_along_axis(inside, block, axis=1)
    before, after = (np.take_along_axis(total, block + k, axis=1) for k in (0, 1))
    ordered = before + fraction * (after - before - own + fraction * own)
    few = kept < np.maximum(MIN_CLASS, fewest * batch.total)[:, None] - 1e-9
    few_of_a_class = few | (np.minimum(positive, negative) < MIN_CLASS - 1e-9)
    return {
        "accuracy": np.where(few, np.nan, (kept - at.of(batch.wrong)) / kept),
        "auroc": np.where(few_of_a_class, np.nan, ratio(ordered, positive * negative)),
        "nll": np.where(few, np.nan, at.of(batch.derived(_log_loss)) / kept),
    }


def _pairs(batch: Batch) -> tuple[Floats, Floats]:
    return batch.cases.index(Pairs).cumulate(batch.weight)


def _log_loss(batch: Batch) -> Floats:
    return batch.block_sums(batch.weight * batch.cases.log_loss)


def sensitivity_on_grid(batch: Batch, rates: Floats) -> Floats:
    """Return (R, G) `classification.sensitivity_within` false-positive rates (G,)."""
    ranking = batch.cases.by_prob
    label, ends = batch.cases.label[ranking.order], np.append(0, ranking.ends + 1)
    negative = np.take(cumulate(batch.by_prob * ~label), ends, axis=1)
    positive = np.take(cumulate(batch.by_prob * label), ends, axis=1)
    both = (batch.positives > 0) & (batch.negatives > 0)
    false = negative / np.where(both, batch.negatives, 1.0)[:, None]
    last = np.stack([np.searchsorted(row, rates + 1e-12, side="right") - 1 for row in false])
    hit = np.take_along_axis(positive, last, axis=1) / np.where(both, batch.positives, 1.0)[:, None]
    return np.where(both[:, None], hit, np.nan)
