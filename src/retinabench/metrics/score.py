"""`score`: a predictions file in, every score with its interval out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.inference.bootstrap import check_seed
from retinabench.metrics.sets import describe, image_sets
from retinabench.metrics.sorted_images import EPS
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

SCHEMA = "retinabench.scores/1"
RULES = ("corrected", "published")

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
) -> Scores:
    """Score the test split of a predictions file.

    Arguments
    ---------
    rules: "corrected", or "published": the released Retina Benchmark's protocol, faults included, without intervals.
    bootstrap: replicates over patients for percentile intervals; 0 for none. seed: of the bootstrap (corrected) or of
    the random duplication of shifted images (published). uncertainty: what orders the referral, one of "auto" (the
    file's own column where it has one, else total), "own", "total", "epistemic", "aleatoric", "variance",
    "max_probability". level: of the intervals.

    The sets: `in_domain`, `shifted`, `joint` (both, image by image) and `balanced` (both with the same mass, by exact
    weights). Raises `InputError` where there is no test split or an argument is not known.
    """
    if rules not in RULES:
        raise InputError(f"unknown rules '{rules}'", hint=nearest(rules, RULES))
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more.")
    check_seed(seed)
    test = predictions.select(split="test")
    if test is None:
        raise InputError(
            "holds no image of the test split",
            file=predictions.source,
            hint="Scores are of the test split; leave the column 'split' out if all images belong to it.",
        )
    values, name = referral_uncertainty(test, uncertainty, exact=rules == "published")
    notes = [*test.notes, f"referral is ordered by: {_spoken(name)}", *_notes(test, values, name)]
    if rules == "published":
        from retinabench.metrics.published import sets as published_sets

        sets = published_sets.score_sets(test, values, seed)
        notes.append("the published protocol has no intervals")
        bootstrap = 0
    else:
        sets = {images.name: describe(images, bootstrap, seed, level) for images in image_sets(test, values)}
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
