"""All numbers and curves of one predictions file, computed once and read by every table and figure.

A number is named by its set and score: ("shifted", "auroc"), ("joint", "referral_nll_area"), ("in_domain",
"accuracy_at_50"). The corrected numbers are functions of image weights, as jackknife and bootstrap over patients need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics import published, referral_curves
from retinabench.metrics.bootstrap import cluster_bootstrap, cluster_codes, cluster_jackknife
from retinabench.metrics.image_sets import ImageSet, SetEvaluator, image_sets
from retinabench.metrics.intervals import Ends
from retinabench.metrics.referral_curves import Curve
from retinabench.metrics.registry import REFERRED_PERCENT, SCORES
from retinabench.metrics.scoring import interval_of
from retinabench.metrics.weighted_images import Weighted
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.curves import Curves, corrected_curves, published_curves

Floats = NDArray[np.float64]
Key = tuple[str, str]
PLAIN = ("nll", "accuracy", "auprc", "auroc", "ece_top_label")
DETECTION = ("ood_auroc", "ood_auprc")
METRICS = ("accuracy", "nll", "auroc", "auprc")
AT = ("accuracy", "auroc")  # metrics that are also read at single fractions referred
LEVEL = 0.95
BLOCKS = 50  # of patients: the relative error of the jackknife standard error is 1 / sqrt(2 x 49) = 10 %


@dataclass(frozen=True)
class MeasureJob:
    """One file to measure.

    Attributes:
        test: The test images; `uncertainty` orders their referral.
        rules: "corrected" or "published".
        bootstrap: Replicates for intervals, 0 for none.
        seed: Seed of jackknife blocks, bootstrap and the random sets of the published rules.
    """

    test: Predictions
    rules: str
    bootstrap: int
    seed: int


@dataclass(frozen=True)
class Measurements:
    """The numbers and curves of one predictions file.

    Attributes:
        value: Number by key, NaN where undefined.
        why: Reason by key of an undefined number.
        jackknife: By key (B,) values, each without one block of patients; empty under the published rules.
        intervals: By key the interval that `score` gives, where a bootstrap was asked for.
        curves: ROC and referral curves on common grids.
    """

    value: dict[Key, float]
    why: dict[Key, str]
    jackknife: dict[Key, Floats]
    intervals: dict[Key, Ends]
    curves: Curves = field(repr=False)

    def get(self, key: Key) -> float:
        """Return a number, NaN where the file has none."""
        return self.value.get(key, np.nan)


def measure(job: MeasureJob) -> Measurements:
    """Return all numbers and curves of one file."""
    return _published(job) if job.rules == "published" else _corrected(job)


def _corrected(job: MeasureJob) -> Measurements:
    test = job.test
    assert test.uncertainty is not None
    sets = image_sets(test, test.uncertainty)
    curves: dict[tuple[str, str], Curve] = {}
    out = Measurements({}, {}, {}, {}, corrected_curves(test, sets, curves))
    for images in sets:
        mine = {metric: curves[images.name, metric] for metric in METRICS}
        whole = images.whole
        point = _numbers(images.name, whole, mine, mine["auprc"].area)
        out.value.update(point)
        out.why.update({key: _why(key, images, mine) for key, v in point.items() if not np.isfinite(v)})
        statistic = _statistic(images, mine["auprc"].area, len(point))
        if cluster_codes(images.cluster)[1] > 1:
            left_out = cluster_jackknife(statistic, images.cluster, blocks=BLOCKS, seed=job.seed)
            out.jackknife.update(zip(point, left_out.T, strict=True))
        if job.bootstrap:
            drawn = cluster_bootstrap(statistic, images.cluster, replicates=job.bootstrap, seed=job.seed)
            out.intervals.update(
                {
                    key: interval_of(SCORES[key[1]], whole, value, draws, LEVEL)
                    for (key, value), draws in zip(point.items(), drawn.T, strict=True)
                }
            )
    return out


def _statistic(images: ImageSet, area: float, count: int) -> Callable[[Floats], Floats]:
    """Return the numbers of a set as a function of weights (N,); the referral AUPRC is read at a few counts, as in `score`."""
    auprc = SetEvaluator(images, [SCORES["referral_auprc_area"]], np.array([area]))

    def statistic(weight: Floats) -> Floats:
        w = images.weigh(weight)
        if w is None:
            return np.full(count, np.nan)
        curves = {metric: referral_curves.curve_of(w, metric) for metric in METRICS if metric != "auprc"}
        return np.array(list(_numbers(images.name, w, curves, float(auprc(weight)[0])).values()))

    return statistic


def _numbers(name: str, w: Weighted, curves: dict[str, Curve], area: float) -> dict[Key, float]:
    """Return the numbers of one weighted set, always in this order."""
    out = {score: SCORES[score](w) for score in (*PLAIN, *(DETECTION if name == "joint" else ()))}
    out |= {f"referral_{metric}_area": curves[metric].area for metric in METRICS if metric != "auprc"}
    out["referral_auprc_area"] = area
    out |= {f"{metric}_at_{p}": curves[metric].at(p / 100) for metric in AT for p in REFERRED_PERCENT}
    return {(name, score): value for score, value in out.items()}


def _why(key: Key, images: ImageSet, curves: dict[str, Curve]) -> str:
    metric, at, referred = key[1].partition("_at_")
    if not at:
        return SCORES[key[1]].why_undefined(images.whole)
    curve = curves[metric]
    k = min(int(np.searchsorted(curve.referred, int(referred) / 100 - 1e-9)), len(curve.value) - 1)
    held = f"{curve.positives[k]:g} positive and {curve.negatives[k]:g} negative images"
    return f"needs both classes: {f'the set has {held}' if referred == '0' else f'{held} are retained'}"


def _published(job: MeasureJob) -> Measurements:
    """Return the released code's numbers, as `score` does; that protocol has no intervals."""
    test = job.test
    assert test.uncertainty is not None
    sets = published.score_sets(test, test.uncertainty, job.seed)
    curves, whole = published_curves(test, job.seed)
    out = Measurements({}, {}, {}, {}, curves)
    for name, found in sets.items():
        for score, entry in found.scores.items():
            out.value[name, score] = entry.value
            if entry.why is not None:
                out.why[name, score] = "the released code gives none: one class only"
        for metric in AT:
            values = whole[name, metric]
            for p in REFERRED_PERCENT:
                out.value[name, f"{metric}_at_{p}"] = float(values[int(p / 100 * (len(values) - 1))])
    return out
