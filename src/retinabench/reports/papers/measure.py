"""All numbers and curves of one predictions file, computed once; tables and figures only read them.

A number is named by its set and score: ("shifted", "auroc"), ("joint", "referral_nll_area"), ("in_domain",
"accuracy_at_50"). Corrected numbers are functions of weights, so that patients can be left out or drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.inference.bootstrap import cluster_bootstrap, cluster_codes, cluster_jackknife
from retinabench.metrics.registry import REFERRED_PERCENT, SCORES
from retinabench.metrics.selective import referral_curves
from retinabench.metrics.selective.referral_curves import Curve
from retinabench.metrics.sets import Evaluator, ImageSet, image_sets
from retinabench.metrics.sorted_images import Weighted
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.curves import Curves, corrected_curves, published_curves

Floats = NDArray[np.float64]
Key = tuple[str, str]
PLAIN = ("nll", "accuracy", "auprc", "auroc", "ece_top_label")
DETECTION = ("ood_auroc", "ood_auprc")
METRICS = ("accuracy", "nll", "auroc", "auprc")
AT = ("accuracy", "auroc")  # the metrics that are also read at single fractions
BLOCKS = 50  # of patients left out: a jackknife error known to 1 / sqrt(2 x 49) = 10 %


@dataclass(frozen=True)
class Job:
    """One file to measure: its test images, with what orders their referral in `uncertainty`.

    bootstrap: replicates for percentile intervals, 0 for none.
    """

    test: Predictions
    rules: str
    bootstrap: int
    seed: int


@dataclass(frozen=True)
class Measured:
    """The numbers of a file: value {key: number}, NaN where undefined, with a `why`; and draws of them.

    left_out: {key: (B,)} with one block of patients left out at a time; none under the published rules. drawn:
    {key: (R,)} with patients drawn with replacement, where a bootstrap was asked for.
    """

    value: dict[Key, float]
    why: dict[Key, str]
    left_out: dict[Key, Floats]
    drawn: dict[Key, Floats]
    curves: Curves = field(repr=False)

    def get(self, key: Key) -> float:
        """The value of a number, NaN where the file has none."""
        return self.value.get(key, np.nan)


def measure(job: Job) -> Measured:
    """Measure one file."""
    return _published(job) if job.rules == "published" else _corrected(job)


def _corrected(job: Job) -> Measured:
    test = job.test
    assert test.uncertainty is not None
    sets = image_sets(test, test.uncertainty)
    curves: dict[tuple[str, str], Curve] = {}
    out = Measured({}, {}, {}, {}, corrected_curves(test, sets, curves))
    for images in sets:
        mine = {metric: curves[images.name, metric] for metric in METRICS}
        point = _numbers(images.name, images.whole, mine, mine["auprc"].area)
        out.value.update(point)
        out.why.update({key: _why(key, images, mine) for key, v in point.items() if not np.isfinite(v)})
        statistic = _statistic(images, mine["auprc"].area, len(point))
        if cluster_codes(images.cluster)[1] > 1:
            left_out = cluster_jackknife(statistic, images.cluster, blocks=BLOCKS, seed=job.seed)
            out.left_out.update(zip(point, left_out.T, strict=True))
        if job.bootstrap:
            drawn = cluster_bootstrap(statistic, images.cluster, replicates=job.bootstrap, seed=job.seed)
            out.drawn.update(zip(point, drawn.T, strict=True))
    return out


def _statistic(images: ImageSet, area: float, count: int) -> Callable[[Floats], Floats]:
    """The numbers of a set as a function of weights (N,); AUPRC over referral is seen at a few counts, as in `score`."""
    auprc = Evaluator(images, [SCORES["referral_auprc_area"]], np.array([area]))

    def statistic(weight: Floats) -> Floats:
        w = images.weigh(weight)
        if w is None:
            return np.full(count, np.nan)
        curves = {metric: referral_curves.curve_of(w, metric) for metric in METRICS if metric != "auprc"}
        return np.array(list(_numbers(images.name, w, curves, float(auprc(weight)[0])).values()))

    return statistic


def _numbers(name: str, w: Weighted, curves: dict[str, Curve], area: float) -> dict[Key, float]:
    """The numbers of one weighted set, always in this order."""
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


def _published(job: Job) -> Measured:
    """The released code's numbers, as `score` gives them; no draws, for that protocol has no intervals."""
    from retinabench.metrics.published import sets as published_sets

    test = job.test
    assert test.uncertainty is not None
    sets = published_sets.score_sets(test, test.uncertainty, job.seed)
    curves, whole = published_curves(test, job.seed)
    out = Measured({}, {}, {}, {}, curves)
    for name, found in sets.items():
        for score, entry in found["scores"].items():
            out.value[name, score] = np.nan if entry["value"] is None else entry["value"]
            if entry["value"] is None:
                out.why[name, score] = "the released code gives none: one class only"
        for metric in AT:
            values = whole[name, metric]
            for p in REFERRED_PERCENT:
                out.value[name, f"{metric}_at_{p}"] = float(values[int(p / 100 * (len(values) - 1))])
    return out
