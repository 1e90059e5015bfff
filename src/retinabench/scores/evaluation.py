"""`score`: a predictions file in, every score with its interval out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.errors import InputError, nearest
from retinabench.predictions import Predictions
from retinabench.scores import calibration, precision, referral
from retinabench.scores.cases import EPS, Cases, Weighted
from retinabench.scores.intervals import cluster_bootstrap, percentile_interval
from retinabench.scores.recalibration import calibration_line_of
from retinabench.scores.shift import balanced_weight
from retinabench.scores.table import SCORES, Score
from retinabench.scores.table import why_undefined as why_undefined
from retinabench.scores.uncertainty import referral_uncertainty

SCHEMA = "retinabench.scores/1"
RULES = ("corrected", "published")
SETS = ("in_domain", "shifted", "joint", "balanced")
NULL_DRAWS = 200
REFERRED = (0.0, 0.5, 0.7)
MAIN_CURVES = ("accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence")
CONTROL_CURVES = ("accuracy", "nll", "auroc")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """All scores of one predictions file; `to_dict` is the JSON of `retinabench score`.

    sets: per set (`in_domain`, `shifted`, `joint`, `balanced`, those that exist) `images`, `patients`, `positives`,
    `scores` {name: {value, low, high, version, …}} and `referral` {metric: {fraction referred: value}}. An undefined
    number is None, with the reason under `why`.
    """

    rules: str
    uncertainty: str
    bootstrap: int
    seed: int
    sets: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None

    def value(self, name: str, set: str = "in_domain") -> float:
        """Return one score of one set, NaN where undefined."""
        value = self.sets[set]["scores"][name]["value"]
        return np.nan if value is None else float(value)

    def to_dict(self) -> dict[str, Any]:
        """Return what `retinabench score --json` writes: only dictionaries, lists, text, finite numbers and None."""
        return {
            "schema": SCHEMA,
            "rules": self.rules,
            "uncertainty": self.uncertainty,
            "bootstrap": self.bootstrap,
            "seed": self.seed,
            "source": self.source,
            "metadata": _plain(self.metadata),
            "notes": list(self.notes),
            "sets": {name: dict(values) for name, values in self.sets.items()},
        }


def score(
    predictions: Predictions,
    rules: str = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    uncertainty: str = "auto",
    *,
    level: float = 0.95,
    workers: int = 1,
) -> Scores:
    """Score the test split of a predictions file.

    Arguments
    ---------
    rules: "corrected", or "published": the released Retina Benchmark's protocol, faults included, without intervals.
    bootstrap: replicates over patients for percentile intervals; 0 for none. seed: of the bootstrap (corrected) or of
    the random duplication of shifted images (published). uncertainty: what orders the referral, one of "auto" (the
    file's own column where it has one, else total), "own", "total", "epistemic", "aleatoric", "variance",
    "max_probability". level: of the intervals. workers: threads of the bootstrap; the numbers do not depend on it.

    The sets: `in_domain`, `shifted`, `joint` (both, image by image) and `balanced` (both with the same mass, by exact
    weights). Raises `InputError` where there is no test split or an argument is not known.
    """
    if rules not in RULES:
        raise InputError(f"unknown rules '{rules}'", cure=nearest(rules, RULES))
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap replicates", cure="Ask for 0 (no intervals) or more.")
    test = predictions.select(split="test")
    if test is None:
        raise InputError(
            "holds no image of the test split",
            file=predictions.source,
            cure="Scores are of the test split; leave the column 'split' out if all images belong to it.",
        )
    values, name = referral_uncertainty(test, uncertainty, exact=rules == "published")
    notes = [*test.notes, f"referral is ordered by: {_spoken(name)}", *_notes(test, values, name)]
    if rules == "published":
        from retinabench.scores import published_sets

        sets = published_sets.score_sets(test, values, seed)
        notes.append("the published protocol has no intervals")
        bootstrap = 0
    else:
        sets = {
            set_name: _score_set(set_name, part, part_values, bootstrap, seed, level, workers)
            for set_name, part, part_values in _sets(test, values)
        }
    return Scores(rules, name, bootstrap, seed, sets, tuple(notes), test.metadata, test.source)


def _plain(metadata: Mapping[str, Any]) -> Any:
    """Whatever a file said of itself, as valid JSON: NaN and infinity are None, other objects their text."""
    return json.loads(json.dumps(dict(metadata), default=str), parse_constant=lambda _: None)


def _spoken(name: str) -> str:
    return "the file's own column 'uncertainty'" if name == "own" else f"{name.replace('_', ' ')} uncertainty"


def _notes(test: Predictions, values: Floats, name: str) -> list[str]:
    notes = []
    if test.patient_id is None:
        notes.append("no patient_id: every image is its own cluster, intervals may be too narrow")
    if name in ("epistemic", "variance") and test.samples == 1:
        notes.append(f"one sample per image: its {name} uncertainty is 0, referral is random")
    saturated = int(np.count_nonzero((test.prob < EPS) | (test.prob > 1 - EPS)))
    if saturated:
        notes.append(f"{saturated} images have probability 0 or 1: clipped to {EPS:g} in the NLL")
    distinct = len(np.unique(values))
    if distinct < len(values):
        notes.append(f"{len(values)} images have {distinct} distinct uncertainties: ties are shared evenly")
    return notes


def _sets(test: Predictions, values: Floats) -> list[tuple[str, Predictions, Floats]]:
    """The sets that exist: each domain, and both together twice."""
    found = []
    for domain in ("in_domain", "shifted"):
        rows = np.flatnonzero(test.domain == domain)
        if len(rows):
            found.append((domain, test.take(rows), values[rows]))
    if len(found) == 2:
        found += [("joint", test, values), ("balanced", test, values)]
    return found


def _score_set(
    name: str, part: Predictions, values: Floats, bootstrap: int, seed: int, level: float, workers: int
) -> dict[str, Any]:
    shifted = part.domain == "shifted"
    cases = Cases(part.label, part.prob, values, shifted if name == "joint" else None)

    def weigh(weight: Floats | None) -> Weighted | None:
        if name != "balanced":
            return cases.weighted(weight)
        both = balanced_weight(shifted, weight)
        return None if np.isnan(both[0]) else cases.weighted(both)

    scores = [s for s in SCORES.values() if s.sets is None or name in s.sets]
    whole = weigh(None)
    assert whole is not None
    curves = {metric: referral.curve_of(whole, metric) for metric in MAIN_CURVES}
    point = np.array([_from_curve(s, curves) if _area(s) else s(whole) for s in scores])
    low = high = np.full(len(scores), np.nan)
    if bootstrap:
        # Replicates see AUPRC over referral at a few counts only; their distance from its value there is what counts.
        coarse = precision.coarse_area(whole, referral.MIN_CLASS)

        def statistic(weight: Floats) -> Floats:
            w = weigh(weight)
            if w is None:
                return np.full(len(scores), np.nan)
            return np.array(
                [precision.coarse_area(w, referral.MIN_CLASS) if _coarse(s) else s(w) for s in scores]
            )

        cluster = part.image_id if part.patient_id is None else part.patient_id
        draws = cluster_bootstrap(statistic, cluster, replicates=bootstrap, seed=seed, workers=workers)
        for k, s in enumerate(scores):
            if _coarse(s):
                draws[:, k] += point[k] - coarse
        low, high = percentile_interval(draws, level)
    return {
        "images": len(part),
        "patients": None if part.patient_id is None else len(np.unique(part.patient_id)),
        "positives": int(part.label.sum()),
        "scores": {
            s.name: _entry(s, point[k], low[k], high[k], bootstrap, whole, curves)
            for k, s in enumerate(scores)
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


def _classes(curve: referral.Curve, referred: float) -> dict[str, float | None]:
    """Retained images of each class (their weight) where this fraction is referred: the reason of a null."""
    k = int(np.flatnonzero(curve.referred >= referred - 1e-9)[0]) if curve.referred[-1] >= referred else -1
    return {
        "positives": _number(curve.positives[k]) if k >= 0 else None,
        "negatives": _number(curve.negatives[k]) if k >= 0 else None,
    }


def _control(cases: Cases, uncertainty: Floats | NDArray[np.bool_], w: Weighted) -> dict[str, float | None]:
    """Summaries of the same answers referred at random or errors first, for the same axes."""
    other = Cases(cases.label, cases.prob, uncertainty).weighted(w.weight)
    values = {f"referral_{metric}_area": referral.area_of(other, metric) for metric in CONTROL_CURVES}
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


def _area(s: Score) -> bool:
    return s.name.startswith("referral_")


def _coarse(s: Score) -> bool:
    return s.name == "referral_auprc_area"


def _metric(s: Score) -> str:
    return s.name.removeprefix("referral_").removesuffix("_area")


def _from_curve(s: Score, curves: Mapping[str, referral.Curve]) -> float:
    return curves[_metric(s)].area


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _entry(
    s: Score,
    value: float,
    low: float,
    high: float,
    bootstrap: int,
    w: Weighted,
    curves: Mapping[str, referral.Curve],
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "value": _number(value),
        "low": _number(low),
        "high": _number(high),
        "version": s.version,
    }
    if _area(s) and referral.ranks_classes(_metric(s)):
        entry["reach"] = _number(curves[_metric(s)].reach)
    if not np.isfinite(value):
        entry["why"] = why_undefined(s, w)
    elif bootstrap and not np.isfinite(low):
        entry["why"] = "no interval: the score is undefined in more than 5 % of the bootstrap replicates"
    return entry
