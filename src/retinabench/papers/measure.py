"""All numbers and curves of one predictions file, computed once; tables and figures only read them.

A number is named by its set and score: ("shifted", "auroc"), ("joint", "referral_nll_area"), ("in_domain",
"accuracy_at_0.5"). Corrected numbers are functions of weights, so that patients can be left out or drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.papers.curves import Curves, corrected_curves, published_curves
from retinabench.predictions import Predictions
from retinabench.scores import referral
from retinabench.scores.cases import Weighted
from retinabench.scores.intervals import cluster_bootstrap, cluster_codes, cluster_jackknife
from retinabench.scores.sets import Evaluator, ImageSet, image_sets
from retinabench.scores.table import SCORES, why_undefined

Floats = NDArray[np.float64]
Key = tuple[str, str]
PLAIN = ("nll", "accuracy", "auprc", "auroc", "ece_top_label")
DETECTION = ("ood_auroc", "ood_auprc")
METRICS = ("accuracy", "nll", "auroc", "auprc")
AT = ("accuracy", "auroc")  # the metrics that are also read at single fractions
REFERRED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)  # the 2021 tables, and the steps of the 2019 leaderboard
BLOCKS = 50  # of patients left out: a jackknife error of 1 / sqrt(2 x 49) = 10 %


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
    """The K numbers of a file: value (K,), NaN where undefined with a `why`, and draws of them.

    left_out: (B, K) with one block of patients left out at a time; B = 0 under the published rules and for a single
    patient. drawn: (R, K) with patients drawn with replacement.
    """

    keys: tuple[Key, ...]
    value: Floats
    why: dict[Key, str]
    left_out: Floats
    drawn: Floats
    curves: Curves = field(repr=False)

    def get(self, key: Key) -> float:
        """The value of a number, NaN where the file has none."""
        return float(self.value[self.keys.index(key)]) if key in self.keys else np.nan

    def column(self, key: Key, draws: str) -> Floats:
        """(B,) or (R,) draws of a number: `left_out` or `drawn`; empty where there are none."""
        values: Floats = getattr(self, draws)
        return values[:, self.keys.index(key)] if key in self.keys else np.empty(0)


def measure(job: Job) -> Measured:
    """Measure one file."""
    return _published(job) if job.rules == "published" else _corrected(job)


def _corrected(job: Job) -> Measured:
    test = job.test
    assert test.uncertainty is not None
    sets = image_sets(test, test.uncertainty)
    curves = {(s.name, m): referral.curve_of(s.whole, m) for s in sets for m in METRICS}
    evaluators = {
        s.name: Evaluator(s, [SCORES["referral_auprc_area"]], np.array([curves[s.name, "auprc"].area]))
        for s in sets
    }
    rows = {s.name: _rows(test, s) for s in sets}

    def of_set(images: ImageSet, weight: Floats | None) -> dict[Key, float]:
        name = images.name
        w = images.weigh(weight) if weight is None or weight.any() else None
        if w is None:
            return dict.fromkeys(keys_of[name], np.nan)
        if weight is None:
            known = {metric: curves[name, metric] for metric in METRICS}
            area = known["auprc"].area
        else:
            known = {metric: referral.curve_of(w, metric) for metric in METRICS if metric != "auprc"}
            area = float(evaluators[name](weight)[0])
        return _numbers(name, w, known, area)

    point: dict[Key, float] = {}
    keys_of: dict[str, tuple[Key, ...]] = {}
    for images in sets:
        found = of_set(images, None)
        keys_of[images.name] = tuple(found)
        point |= found

    def statistic(weight: Floats) -> Floats:
        values: list[float] = []
        for images in sets:
            values += of_set(images, weight[rows[images.name]]).values()
        return np.array(values)

    why = {
        key: _why(key, images, curves)
        for images in sets
        for key in keys_of[images.name]
        if not np.isfinite(point[key])
    }
    left_out, drawn = _draws(statistic, test, len(point), job)
    return Measured(
        tuple(point),
        np.array(list(point.values())),
        why,
        left_out,
        drawn,
        corrected_curves(test, sets, curves),
    )


def _numbers(name: str, w: Weighted, curves: dict[str, referral.Curve], area: float) -> dict[Key, float]:
    """The numbers of one weighted set, always in this order."""
    out = {score: SCORES[score](w) for score in (*PLAIN, *(DETECTION if name == "joint" else ()))}
    out |= {f"referral_{metric}_area": curves[metric].area for metric in METRICS if metric != "auprc"}
    out["referral_auprc_area"] = area
    out |= {f"{metric}_at_{r:g}": curves[metric].at(r) for metric in AT for r in REFERRED}
    return {(name, score): value for score, value in out.items()}


def _rows(test: Predictions, images: ImageSet) -> NDArray[np.intp]:
    if images.name in ("joint", "balanced"):
        return np.arange(len(test))
    return np.flatnonzero(test.domain == images.name)


def _draws(
    statistic: Callable[[Floats], Floats], test: Predictions, count: int, job: Job
) -> tuple[Floats, Floats]:
    cluster = test.image_id if test.patient_id is None else test.patient_id
    left_out = drawn = np.empty((0, count))
    if cluster_codes(cluster)[1] > 1:
        left_out = cluster_jackknife(statistic, cluster, blocks=BLOCKS, seed=job.seed)
    if job.bootstrap:
        drawn = cluster_bootstrap(statistic, cluster, replicates=job.bootstrap, seed=job.seed)
    return left_out, drawn


def _why(key: Key, images: ImageSet, curves: dict[tuple[str, str], referral.Curve]) -> str:
    metric, at, referred = key[1].partition("_at_")
    if not at:
        return why_undefined(SCORES[key[1]], images.whole)
    curve = curves[images.name, metric]
    k = min(int(np.searchsorted(curve.referred, float(referred) - 1e-9)), len(curve.value) - 1)
    held = f"{curve.positives[k]:g} positive and {curve.negatives[k]:g} negative images"
    return f"needs both classes: {f'the set has {held}' if referred == '0' else f'{held} are retained'}"


def _published(job: Job) -> Measured:
    """The released code's numbers, as `score` gives them; no draws, for that protocol has no intervals."""
    from retinabench.scores import published_sets

    test = job.test
    assert test.uncertainty is not None
    sets = published_sets.score_sets(test, test.uncertainty, job.seed)
    curves, whole = published_curves(test, job.seed)
    point: dict[Key, float] = {}
    why: dict[Key, str] = {}
    for name, found in sets.items():
        for score, entry in found["scores"].items():
            point[name, score] = np.nan if entry["value"] is None else entry["value"]
            if entry["value"] is None:
                why[name, score] = "the released code gives none: one class only"
        for metric in AT:
            values = whole[name, metric]
            for r in REFERRED:
                point[name, f"{metric}_at_{r:g}"] = float(values[int(r * (len(values) - 1))])
    nothing = np.empty((0, len(point)))
    return Measured(tuple(point), np.array(list(point.values())), why, nothing, nothing, curves)
