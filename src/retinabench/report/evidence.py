"""From predictions to what the page tells: cases, weighted curves and their bootstrap bands.

A *case* is one predictions file on one set. Every statistic takes a weight per image, so that patients can be drawn
again; replicate r draws the same patients for every method, which makes differences between methods paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from retinabench.predictions import Predictions
from retinabench.scores.intervals import cluster_bootstrap, percentile_interval

Floats = NDArray[np.float64]
SETS = {"in_domain": "in-domain", "shifted": "shifted", "joint": "joint"}
FEWEST = 10
"""A curve stops where fewer pictures (for AUROC: fewer of either class) are retained."""
GRID = np.linspace(0, 1, 101)
COARSE = np.linspace(0, 1, 41)
FPR = np.linspace(0, 1, 101)
METRICS = ("accuracy", "auroc", "nll")


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; NaN where undefined, `se` over seeds where there are several."""

    value: float
    low: float = np.nan
    high: float = np.nan
    se: float = np.nan

    @property
    def bounded(self) -> bool:
        """True where the interval is known."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    def sign(self, against: float = 0.0) -> int:
        """1 or -1 where the interval lies above or below `against`, 0 where it holds it or is unknown."""
        if not self.bounded:
            return 0
        return 1 if self.low > against else -1 if self.high < against else 0


@dataclass(frozen=True, eq=False)
class Case:
    """One predictions file on one set; arrays of N images."""

    label: NDArray[np.int8]
    prob: Floats
    uncertainty: Floats
    cluster: NDArray[np.str_]
    image_id: NDArray[np.str_]
    domain: NDArray[np.str_]
    grade: NDArray[np.int8] | None

    @classmethod
    def of(cls, predictions: Predictions, name: str) -> Case | None:
        """Return the test images of a set, or None where it has none."""
        domain = None if name == "joint" else name
        part = predictions.select(domain=domain, split="test")
        if part is None:
            return None
        own = part.uncertainty is not None
        return cls(
            part.label,
            part.prob,
            np.asarray(part.uncertainty, np.float64) if own else entropy(part.prob),
            part.image_id if part.patient_id is None else part.patient_id,
            part.image_id,
            part.domain,
            part.grade,
        )

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """(N,) whether the decision at P(referable) >= 0.5 agrees with the label."""
        return (self.prob >= 0.5) == (self.label == 1)

    @cached_property
    def loss(self) -> Floats:
        """(N,) negative log-likelihood in nats."""
        given = np.where(self.label == 1, self.prob, 1 - self.prob)
        return -np.log(np.clip(given, np.finfo(np.float64).tiny, 1))


def entropy(prob: Floats) -> Floats:
    """(N,) predictive entropy in nats: -p ln p - (1-p) ln(1-p)."""
    q = np.clip(prob, 1e-300, 1)
    r = np.clip(1 - prob, 1e-300, 1)
    return -prob * np.log(q) - (1 - prob) * np.log(r)


class Order:
    """Images of a case from the most certain to the least, equal uncertainties as one block."""

    def __init__(self, case: Case, uncertainty: Floats | None = None) -> None:
        values = case.uncertainty if uncertainty is None else uncertainty
        self.case = case
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        self.ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
        block = np.zeros(len(values), np.intp)
        block[self.order] = np.searchsorted(self.ends, np.arange(len(values)))
        self.block = block

    def mean(self, values: Floats, referred: Floats, weight: Floats) -> Floats:
        """(G,) weighted mean of `values` over what is retained; ties in their expectation over random order."""
        mass = np.concatenate([[0.0], np.cumsum(weight[self.order])[self.ends]])
        total = np.concatenate([[0.0], np.cumsum((weight * values)[self.order])[self.ends]])
        kept = (1 - referred) * mass[-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(kept >= FEWEST - 1e-9, np.interp(kept, mass, total) / kept, np.nan)

    def retained(self, referred: Floats, weight: Floats) -> Floats:
        """(G, N) weight of every image in what is retained; an image of the last block counts in part."""
        mass = np.concatenate([[0.0], np.cumsum(weight[self.order])[self.ends]])
        size = np.diff(mass)
        kept = ((1 - referred) * mass[-1])[:, None]
        share = np.clip((kept - mass[:-1]) / np.where(size > 0, size, 1), 0, 1)
        return np.asarray(share[:, self.block] * weight)

    def auroc(self, referred: Floats, weight: Floats) -> Floats:
        """(G,) AUROC of what is retained, NaN where fewer than `FEWEST` of either class are left."""
        by_prob, first, last = self._by_prob
        kept = self.retained(referred, weight)[:, by_prob]
        positive = kept * self.case.label[by_prob]
        below = np.cumsum(kept - positive, axis=1)
        below = np.concatenate([np.zeros((len(referred), 1)), below], axis=1)
        wins = (positive * (below[:, first] + below[:, last + 1])).sum(axis=1) / 2
        positives, negatives = positive.sum(axis=1), below[:, -1]
        enough = np.minimum(positives, negatives) >= FEWEST - 1e-9
        return np.where(enough, wins / np.where(enough, positives * negatives, 1), np.nan)

    @cached_property
    def _by_prob(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        order = np.argsort(self.case.prob, kind="stable")
        ordered = self.case.prob[order]
        return (
            order,
            np.searchsorted(ordered, ordered, side="left"),
            np.searchsorted(ordered, ordered, side="right") - 1,
        )

    def curve(self, metric: str, referred: Floats, weight: Floats) -> Floats:
        """(G,) a score of what is retained: `accuracy`, `auroc` or `nll`."""
        if metric == "auroc":
            return self.auroc(referred, weight)
        values = self.case.correct.astype(np.float64) if metric == "accuracy" else self.case.loss
        return self.mean(values, referred, weight)


def roc(case: Case, fpr: Floats, weight: Floats) -> Floats:
    """(G,) sensitivity at false-positive rates `fpr`, on the line through the attainable points; NaN for one class."""
    order = np.argsort(-case.prob, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(case.prob[order])), len(order) - 1)
    positive = np.cumsum((weight * case.label)[order])[ends]
    negative = np.cumsum((weight * (1 - case.label))[order])[ends]
    if positive[-1] == 0 or negative[-1] == 0:
        return np.full(len(fpr), np.nan)
    x = np.concatenate([[0.0], negative / negative[-1]])
    y = np.concatenate([[0.0], positive / positive[-1]])
    # At a vertical step the upper end counts: it is attainable at the same specificity.
    top = np.append(np.flatnonzero(np.diff(x) > 0), len(x) - 1)
    return np.interp(fpr, x[top], y[top])


def drawn(
    cases: Sequence[Case], statistic: Callable[[Case], Callable[[Floats], Floats]], *, replicates: int, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Return a statistic (F, K) of every file, (R, K) draws of its mean over files, and (F, K) ready to average.

    `statistic(case)` prepares what does not depend on the weight and returns weight (N,) -> (K,).
    """
    point, draws = [], []
    for case in cases:
        function = statistic(case)
        point.append(function(np.ones(len(case.label))))
        if replicates:
            draws.append(cluster_bootstrap(function, case.cluster, replicates=replicates, seed=seed))
    values = np.stack(point)
    mean = np.mean(draws, axis=0) if replicates else np.full((1, values.shape[1]), np.nan)
    return values, np.asarray(mean), values.mean(axis=0)


def estimates(values: Floats, draws: Floats) -> list[Estimate]:
    """Turn (F, K) values of F seeds and (R, K) draws of their mean into K estimates."""
    low, high = percentile_interval(draws)
    files = len(values)
    mean = values.mean(axis=0)
    se = values.std(axis=0, ddof=1) / np.sqrt(files) if files > 1 else np.full(len(mean), np.nan)
    return [Estimate(*map(float, row)) for row in zip(mean, low, high, se, strict=True)]
