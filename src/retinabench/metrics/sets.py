"""The four sets of a predictions file, and what is said of each: scores, intervals, curves, controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics import calibration
from retinabench.metrics.inference.bootstrap import cluster_bootstrap, percentile_interval
from retinabench.metrics.recalibration import calibration_line_of
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.selective import incremental_precision, referral_curves
from retinabench.metrics.shift import balanced_weight
from retinabench.metrics.sorted_images import Cases, Weighted
from retinabench.predictions.table import Predictions

SET_LABELS = {"in_domain": "In-domain", "shifted": "Shifted", "joint": "Joint", "balanced": "Balanced"}
"""The sets by their key in files, with what tables and figures call them; see `docs/scores.md`."""
SETS = tuple(SET_LABELS)
REFERRED = (0.0, 0.5, 0.7)
MAIN_CURVES = ("accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence")
CONTROL_CURVES = ("accuracy", "nll", "auroc")
NULL_DRAWS = 200

Floats = NDArray[np.float64]


class ImageSet:
    """One of `SETS`: its images sorted for scoring, and how they are weighed."""

    def __init__(self, name: str, part: Predictions, uncertainty: Floats) -> None:
        self.name, self.part = name, part
        self.shifted = part.domain == "shifted"
        self.cases = Cases(part.label, part.prob, uncertainty, self.shifted if name == "joint" else None)
        self.cluster = part.image_id if part.patient_id is None else part.patient_id
        self.scores = [s for s in SCORES.values() if s.given_for(name)]

    def weigh(self, weight: Floats | None = None) -> Weighted | None:
        """Weigh every image, 1 where None; None for a replicate of the balanced set without one of the domains."""
        if self.name != "balanced":
            return self.cases.weighted(weight)
        both = balanced_weight(self.shifted, weight)
        return None if np.isnan(both[0]) else self.cases.weighted(both)

    @property
    def whole(self) -> Weighted:
        """Every image once (balanced: both domains with the same mass)."""
        whole = self.weigh()
        assert whole is not None  # a balanced set is made only where both domains are there
        return whole


class Evaluator:
    """Scores of one set: `point` (K,), and (K,) for any weight (N,) of the images, such as that of a replicate.

    AUPRC over referral is slow: replicates see it at a few counts, moved by what those miss on the whole set.
    """

    def __init__(self, images: ImageSet, scores: Sequence[ScoreSpec], point: Floats | None = None) -> None:
        self.images, self.scores, self.whole = images, scores, images.whole
        self.point = np.array([s(self.whole) for s in scores]) if point is None else point
        coarse = [k for k, s in enumerate(scores) if s.name == "referral_auprc_area"]
        self.offset = {k: self.point[k] - _coarse(self.whole) for k in coarse}

    def __call__(self, weight: Floats) -> Floats:
        """(K,) scores of weighted images, NaN where undefined."""
        w = self.images.weigh(weight)
        if w is None:
            return np.full(len(self.scores), np.nan)
        return np.array(
            # Moved to the exact value, a coarse area of nearly 1 would pass it.
            [
                np.clip(_coarse(w) + self.offset[k], 0.0, 1.0) if k in self.offset else s(w)
                for k, s in enumerate(self.scores)
            ]
        )


def _coarse(w: Weighted) -> float:
    return incremental_precision.coarse_area(w, referral_curves.MIN_CLASS)


def image_sets(test: Predictions, uncertainty: Floats) -> list[ImageSet]:
    """Return the sets that exist: each domain, and both together, as they are and balanced."""
    found = []
    for domain in ("in_domain", "shifted"):
        rows = np.flatnonzero(test.domain == domain)
        if len(rows):
            found.append(ImageSet(domain, test.take(rows), uncertainty[rows]))
    if len(found) == 2:
        found += [ImageSet(name, test, uncertainty) for name in ("joint", "balanced")]
    return found


def describe(images: ImageSet, bootstrap: int, seed: int, level: float) -> dict[str, Any]:
    """Everything that `score` says of one set, as in its JSON."""
    whole = images.whole
    curves = {metric: referral_curves.curve_of(whole, metric) for metric in MAIN_CURVES}
    point = np.array([curves[_metric(s)].area if _area(s) else s(whole) for s in images.scores])
    low = high = np.full(len(point), np.nan)
    if bootstrap:
        statistic = Evaluator(images, images.scores, point)
        draws = cluster_bootstrap(statistic, images.cluster, replicates=bootstrap, seed=seed)
        low, high = percentile_interval(draws, level)
    no_interval = why_no_interval(len(np.unique(images.cluster))) if bootstrap else ""
    part, cases = images.part, images.cases
    return {
        "images": len(part),
        "patients": None if part.patient_id is None else len(np.unique(part.patient_id)),
        "positives": int(part.label.sum()),
        "scores": {
            s.name: _entry(s, point[k], low[k], high[k], no_interval, whole, curves)
            for k, s in enumerate(images.scores)
        },
        "calibration": _calibration(whole, seed),
        "referral": {
            metric: {f"{r:g}": _number(curve.at(r)) for r in REFERRED} for metric, curve in curves.items()
        },
        "retained": {f"{r:g}": _classes(curves["accuracy"], r) for r in REFERRED},
        "controls": {
            "random": _control(cases, np.zeros(len(cases)), whole),
            "oracle": _control(cases, cases.error, whole),
        },
    }


def why_no_interval(patients: int) -> str:
    """Say why a defined score of so many patients has no interval."""
    if patients < 2:
        return "no interval: there is a single patient"
    return "no interval: the score is undefined in more than 5 % of the bootstrap replicates"


def _classes(curve: referral_curves.Curve, referred: float) -> dict[str, float | None]:
    """Retained images of each class (their weight) where this fraction is referred: the reason of a null."""
    k = int(np.flatnonzero(curve.referred >= referred - 1e-9)[0]) if curve.referred[-1] >= referred else -1
    return {
        "positives": _number(curve.positives[k]) if k >= 0 else None,
        "negatives": _number(curve.negatives[k]) if k >= 0 else None,
    }


def _control(cases: Cases, uncertainty: Floats | NDArray[np.bool_], w: Weighted) -> dict[str, float | None]:
    """Summaries of the same answers referred at random or errors first, for the same axes."""
    other = Cases(cases.label, cases.prob, uncertainty).weighted(w.weight)
    values = {f"referral_{metric}_area": referral_curves.area_of(other, metric) for metric in CONTROL_CURVES}
    values |= {name: SCORES[name](other) for name in ("rc_index", "aurc", "e_aurc", "augrc")}
    return {name: _number(value) for name, value in values.items()}


def _calibration(w: Weighted, seed: int) -> dict[str, float | None]:
    """The calibration line, the parts of the Brier score, and the ECE that a perfectly calibrated model would show."""
    values = {f"line_{k}": v for k, v in asdict(calibration_line_of(w)).items()}
    values |= {f"brier_{k}": v for k, v in asdict(calibration.murphy_of(w)).items() if k != "brier"}
    for of in ("top_label", "positive_class"):
        band = calibration.null_band_of(w, of, replicates=NULL_DRAWS, seed=seed)
        values |= {f"null_ece_{of}_{k}": v for k, v in zip(("mean", "low", "high"), band, strict=True)}
    return {name: _number(value) for name, value in values.items()}


def _area(s: ScoreSpec) -> bool:
    return s.name.startswith("referral_")


def _metric(s: ScoreSpec) -> str:
    return s.name.removeprefix("referral_").removesuffix("_area")


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _entry(
    s: ScoreSpec,
    value: float,
    low: float,
    high: float,
    no_interval: str,
    w: Weighted,
    curves: Mapping[str, referral_curves.Curve],
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "value": _number(value),
        "low": _number(low),
        "high": _number(high),
        "version": s.version,
    }
    if _area(s) and referral_curves.ranks_classes(_metric(s)):
        entry["reach"] = _number(curves[_metric(s)].reach)
    if not np.isfinite(value):
        entry["why"] = s.why_undefined(w)
    elif no_interval and not np.isfinite(low):
        entry["why"] = no_interval
    return entry
