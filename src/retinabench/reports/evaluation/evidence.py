"""From predictions to curves and numbers of one set, as functions of weighted images.

Every statistic takes a weight per image, so that patients can be drawn again; replicate r draws the same patients for
every method, which makes differences between methods paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.inference.bootstrap import cluster_bootstrap, percentile_interval
from retinabench.metrics.selective.referral_curves import METRICS as REFERRAL
from retinabench.metrics.selective.referral_curves import MIN_CLASS
from retinabench.metrics.sorted_images import Cases, Weighted
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
SETS = ("in_domain", "shifted", "joint")
"""The sets that the report shows; labels are in `metrics.sets`."""
METRICS = ("accuracy", "auroc", "nll")
GRID = np.linspace(0, 1, 101)
BINS = 10
FEWEST = 0.05
"""Share of the images below which a curve is not drawn on: a handful of images makes it jump."""


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
class SetCase:
    """One predictions file on one set; arrays of N images in the order of the file."""

    image_id: NDArray[np.str_]
    label: NDArray[np.bool_]
    prob: Floats
    uncertainty: Floats
    uncertainty_name: str
    cluster: NDArray[np.str_]
    domain: NDArray[np.str_]
    grade: NDArray[np.int8] | None

    @classmethod
    def of(cls, predictions: Predictions, name: str) -> SetCase | None:
        """Return the test images of a set, or None where it has none (`joint`: of both domains)."""
        part = predictions.select(domain=None if name == "joint" else name, split="test")
        if part is None or (name == "joint" and len(np.unique(part.domain)) < 2):
            return None
        uncertainty, kind = referral_uncertainty(part)
        cluster = part.image_id if part.patient_id is None else part.patient_id
        return cls(
            part.image_id, part.label == 1, part.prob, uncertainty, kind, cluster, part.domain, part.grade
        )

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def cases(self) -> Cases:
        """The images sorted for scoring."""
        return Cases(self.label, self.prob, self.uncertainty)

    @cached_property
    def perfect(self) -> Cases:
        """The same images, referred in the order of their true loss: no uncertainty can do better."""
        loss = np.empty(len(self))
        loss[self.cases.order] = self.cases.log_loss
        return Cases(self.label, self.prob, loss)

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """(N,) whether the answer p > 1/2 agrees with the label."""
        return np.asarray((self.prob > 0.5) == self.label)

    @cached_property
    def bins(self) -> NDArray[np.intp]:
        """(N,) the equally filled bin of every probability; equal probabilities share one."""
        edges = np.unique(np.quantile(self.prob, np.linspace(0, 1, BINS + 1)[1:-1]))
        return np.asarray(np.searchsorted(edges, self.prob, side="left"))


def referral(w: Weighted, metric: str) -> Floats:
    """(G,) a score of what is retained, over `GRID` of the share referred; NaN where too few images remain."""
    value = np.array(REFERRAL[metric](w)[0])
    few = w.points < max(MIN_CLASS, FEWEST * w.total) - 1e-9
    if metric == "auroc":
        few |= np.minimum(w.retained_positives, w.retained_negatives) < MIN_CLASS - 1e-9
    value[few] = np.nan
    return np.asarray(np.interp((1 - GRID) * w.total, w.points, value, left=np.nan))


def observed(case: SetCase, weight: Floats) -> Floats:
    """(BINS,) share of referable images by bin of predicted probability, NaN in an empty bin."""
    total = np.bincount(case.bins, weight, BINS)
    positive = np.bincount(case.bins, weight * case.label, BINS)
    return np.asarray(np.divide(positive, total, out=np.full(BINS, np.nan), where=total > 0))


def figures_of(case: SetCase) -> Callable[[Floats], Floats]:
    """Return weight (N,) -> all curves of the figures in one row: referral by metric, ROC, reliability."""

    def statistic(weight: Floats) -> Floats:
        w = case.cases.weighted(weight)
        curves = [referral(w, metric) for metric in METRICS]
        return np.concatenate([*curves, sensitivity_within(w, GRID), observed(case, weight)])

    return statistic


def drawn(
    cases: Sequence[SetCase],
    prepare: Callable[[SetCase], Callable[[Floats], Floats]],
    replicates: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """Return a statistic (F, K) of F files and its draws (F, R, K), replicate r on the same patients in every file."""
    functions = [prepare(case) for case in cases]
    values = np.stack([f(np.ones(len(case))) for f, case in zip(functions, cases, strict=True)])
    if not replicates:
        return values, np.full((len(cases), 1, values.shape[1]), np.nan)
    draws = [
        cluster_bootstrap(f, case.cluster, replicates=replicates, seed=seed)
        for f, case in zip(functions, cases, strict=True)
    ]
    return values, np.stack(draws)


def estimates(values: Floats, draws: Floats) -> list[Estimate]:
    """Turn (F, K) values of F seeds and their draws (F, R, K) into K estimates of the mean over seeds."""
    low, high = percentile_interval(draws.mean(axis=0))
    files, mean = len(values), values.mean(axis=0)
    se = values.std(axis=0, ddof=1) / np.sqrt(files) if files > 1 else np.full(len(mean), np.nan)
    return [
        Estimate(float(m), float(a), float(b), float(s))
        for m, a, b, s in zip(mean, low, high, se, strict=True)
    ]
