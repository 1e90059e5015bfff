"""Reading by uncertainty against the best simple rule of the same workload.

An expert who reads as many images could read those whose probability is nearest to the decision threshold, which is what two thresholds of the
probability do (`around`), or the most suspicious of those that the model calls not referable, which is what a second, lower threshold does
(`below`). The better of the two, by its net benefit on the same images, is what a referral by uncertainty is held against.

The net benefit counts found disease less false alarms, at the price that is stated, or t / (1 - t) at the decision threshold t (Vickers and
Elkin, 2006), with the stated rates of the reader; differences are paired image by image and clustered by patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import Document
from retinabench.metrics.arrays import Bools, Floats
from retinabench.metrics.clinical.screening_table import reading_calls
from retinabench.metrics.decisions import margin
from retinabench.metrics.proportions import Interval, clustered_proportion, combined_proportions


@dataclass(frozen=True)
class SimpleRule(Document):
    """The best simple rule at the workload of a referral, and how the referral compares with it."""

    name: Literal["around", "below"]  # of the decision threshold
    missed: Interval  # share of the referable images in the end, the reader's misses included
    gain: Interval  # net benefit of the referral by uncertainty less that of this rule, per image
    price: float  # of a false alarm, in missed referable images
    same: bool  # whether both do the same to every image


def best_simple_rule(
    y: Bools,
    prob: Floats,
    said: Bools,
    sent: Bools,
    codes: NDArray[np.intp],
    cut: float,
    reader: tuple[float, float],
    price: float,
    weight: Floats,
) -> SimpleRule:
    """Return the best simple rule that reads as many images as are `sent`; a false alarm costs `price` missed referable images.

    Shapes: `y`, `prob`, `said`, `sent`, `codes`, `weight` (N,).
    """

    def benefit(read: Bools) -> tuple[Floats, Floats]:
        called = reading_calls(y, said, read, reader)["reader"]
        return called, np.where(y, called, -price * called)

    orders = {"around": np.argsort(-margin(prob, cut), kind="stable"), "below": np.lexsort((np.abs(prob - cut), said))}
    work = (weight * sent).sum() + 1e-9
    rules = {
        name: np.isin(np.arange(len(y)), order[np.cumsum(weight[order]) <= work]) for name, order in orders.items()
    }
    found = {name: benefit(read) for name, read in rules.items()}
    name: Literal["around", "below"] = "below" if weight @ found["below"][1] > weight @ found["around"][1] else "around"
    called, simple = found[name]
    gain = benefit(sent)[1] - simple
    scale = max(1.0, price)  # shares lie in [0, 1]
    parts = [(scale, np.maximum(gain, 0) / scale), (-scale, np.maximum(-gain, 0) / scale)]
    # Two rules may order rounding errors or ties differently, and yet do the same to every image.
    return SimpleRule(
        name,
        clustered_proportion(1 - called, y * weight, codes),
        combined_proportions(parts, codes, weight),
        price,
        not gain.any(),
    )
