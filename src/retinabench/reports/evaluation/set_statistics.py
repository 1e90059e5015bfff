"""Curves and numbers of one predictions file on one set, as functions of weighted images, with bootstrap intervals.

Every statistic takes a weight per image, for the bootstrap over patients. Replicate r resamples the same patients for every
method, so that differences between methods are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.bootstrap import Statistic, cluster_bootstrap, cluster_codes
from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.intervals import Ends, IntervalMethod, difference_method
from retinabench.metrics.referral_curves import METRICS as REFERRAL
from retinabench.metrics.referral_curves import MIN_CLASS, referral_on_grid, sensitivity_on_grid
from retinabench.metrics.registry import ScoreSpec
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import Batch, Cases, Weighted, is_positive
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit.number_format import Quantity

Floats = NDArray[np.float64]
SETS = ("in_domain", "shifted", "joint")
"""The sets that the report shows; labels are in `metrics.sets`."""
METRICS = ("accuracy", "auroc", "nll")
GRID = np.linspace(0, 1, 101)
BINS = 10
FEWEST = 0.05
"""Share of the images below which a curve ends: it is too noisy where few images are left."""


@dataclass(frozen=True, eq=False)
class SetPredictions:
    """One predictions file on one set; arrays of N images in the order of the file."""

    image_id: NDArray[np.str_]
    label: NDArray[np.bool_]
    prob: Floats
    uncertainty: Floats
    uncertainty_name: str
    cluster: NDArray[np.str_]
    domain: NDArray[np.str_]
    grade: NDArray[np.int8] | None
    threshold: float = 0.5

    @classmethod
    def of(
        cls, predictions: Predictions, name: str, uncertainty: str = "auto", threshold: float = 0.5
    ) -> SetPredictions | None:
        """Return the test images of a set, or None where it has none (`joint`: of both domains)."""
        part = predictions.select(domain=None if name == "joint" else name, split="test")
        if part is None or (name == "joint" and len(np.unique(part.domain)) < 2):
            return None
        values, kind = referral_uncertainty(part, uncertainty, threshold=threshold)
        cluster = part.image_id if part.patient_id is None else part.patient_id
        return cls(
            part.image_id,
            part.label == 1,
            part.prob,
            values,
            kind,
            cluster,
            part.domain,
            part.grade,
            threshold,
        )

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def cases(self) -> Cases:
        """The images sorted for scoring."""
        patient = cluster_codes(self.cluster)[0]
        return Cases(self.label, self.prob, self.uncertainty, threshold=self.threshold, patient=patient)

    @cached_property
    def oracle(self) -> Cases:
        """The same images, referred in the order of their true loss: the best possible uncertainty (oracle referral).

        At a threshold other than one half a correct prediction may have a larger loss than a wrong one: the wrong ones come first.
        """
        loss = np.empty(len(self))
        first = 100.0 * self.cases.error if self.threshold != 0.5 else 0.0
        loss[self.cases.order] = self.cases.log_loss + first
        return Cases(self.label, self.prob, loss, threshold=self.threshold)

    @cached_property
    def called(self) -> NDArray[np.bool_]:
        """(N,) whether the method calls the image referable."""
        return is_positive(self.prob, self.threshold)

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """(N,) whether that agrees with the label."""
        return np.asarray(self.called == self.label)

    @cached_property
    def bins(self) -> NDArray[np.intp]:
        """(N,) the equally filled bin of every probability; equal probabilities share one."""
        return self.bins_of(self.prob)

    def bins_of(self, prob: Floats) -> NDArray[np.intp]:
        """Return the bin of other probabilities."""
        return np.asarray(np.searchsorted(self._edges, prob, side="left"))

    @cached_property
    def _edges(self) -> Floats:
        return np.unique(np.quantile(self.prob, np.linspace(0, 1, BINS + 1)[1:-1]))


def referral(w: Weighted, metric: str) -> Floats:
    """Return a score (G,) of the retained images over `GRID` of the share referred; NaN where too few images remain."""
    value = np.array(REFERRAL[metric](w)[0])
    few = w.points < max(MIN_CLASS, FEWEST * w.total) - 1e-9
    if metric == "auroc":
        few |= np.minimum(w.retained_positives, w.retained_negatives) < MIN_CLASS - 1e-9
    value[few] = np.nan
    return np.asarray(np.interp((1 - GRID) * w.total, w.points, value, left=np.nan))


def observed(case: SetPredictions, weight: Floats) -> Floats:
    """Return the share of referable images (BINS,) by bin of predicted probability, NaN in an empty bin."""
    total = np.bincount(case.bins, weight, BINS)
    positive = np.bincount(case.bins, weight * case.label, BINS)
    return np.asarray(np.divide(positive, total, out=np.full(BINS, np.nan), where=total > 0))


class AllCurves:
    """All curves of the figures in one row, as a function of the weights of the images: referral by metric, ROC, reliability."""

    def __init__(self, case: SetPredictions) -> None:
        self.case = case

    def __call__(self, weight: Floats) -> Floats:
        """Return the (K,) values for weights (N,)."""
        w = self.case.cases.weighted(weight)
        curves = [referral(w, metric) for metric in METRICS]
        return np.concatenate([*curves, sensitivity_within(w, GRID), observed(self.case, weight)])

    def rows(self, weight: Floats) -> Floats:
        """Return (R, K) for weights (R, N): as a call for each row, to 1e-12, and much faster."""
        cases = self.case.cases
        batch = Batch(cases, np.take(weight, cases.order, axis=1))
        curves = referral_on_grid(batch, GRID, FEWEST)
        seen = np.stack([observed(self.case, one) for one in weight])
        return np.concatenate(
            [*(curves[name] for name in METRICS), sensitivity_on_grid(batch, GRID), seen], axis=1
        )


def replicated(
    cases: Sequence[SetPredictions],
    prepare: Callable[[SetPredictions], Statistic],
    replicates: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """Return a statistic of F files and its bootstrap replicates.

    Shapes: `prepare` (N,), returns (F, K).
    """
    functions = [prepare(case) for case in cases]
    values = np.stack([f(np.ones(len(case))) for f, case in zip(functions, cases, strict=True)])
    if not replicates:
        return values, np.full((len(cases), 1, values.shape[1]), np.nan)
    found = [
        cluster_bootstrap(f, case.cluster, replicates=replicates, seed=seed)
        for f, case in zip(functions, cases, strict=True)
    ]
    return values, np.stack(found)


def scored(
    specs: Sequence[ScoreSpec], wholes: Sequence[Weighted], values: Floats, replicates: Floats
) -> list[Quantity]:
    """Return the mean of K scores over F seeds, each with the interval that its kind asks for.

    Shapes: `values` (F, K), `replicates` (F, R, K).
    """
    return _with_intervals([spec.interval for spec in specs], wholes, values, replicates)


def differences(
    specs: Sequence[ScoreSpec], wholes: Sequence[Weighted], values: Floats, replicates: Floats
) -> list[Quantity]:
    """Return the mean of K differences of scores over F seeds, as `scored`; the interval is that of `difference_method`.

    Shapes: `values` (F, K), `replicates` (F, R, K).
    """
    methods = [difference_method(spec.interval) for spec in specs]
    return _with_intervals(methods, wholes, values, replicates)


def _with_intervals(
    methods: Sequence[IntervalMethod], wholes: Sequence[Weighted], values: Floats, replicates: Floats
) -> list[Quantity]:
    files, mean = len(values), values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(files) if files > 1 else np.full(len(mean), np.nan)
    found = []
    for method, value, draws, scatter in zip(
        methods, mean.tolist(), replicates.mean(axis=0).T, error.tolist(), strict=True
    ):
        known = np.isfinite(value) and np.isfinite(draws).any()
        ends = method.ends(wholes, value, draws, 0.95) if known else Ends()
        found.append(Quantity(value, ends.low, ends.high, scatter))
    return found
