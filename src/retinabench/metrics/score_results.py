"""The typed results of `retinabench.score`; `to_dict` gives the JSON of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import (
    Document,
    IntervalRow,
    JsonObject,
    Row,
    Tabular,
    draw_intervals,
    json_content,
    vars_of,
)
from retinabench.core.untrusted import shown
from retinabench.metrics.calibration import SetCalibration
from retinabench.metrics.clinical.screening_report import Baseline
from retinabench.metrics.clinical.thresholds import ABOVE_HALF, FrozenThreshold
from retinabench.metrics.grades import GradeScores
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.registry import SCORES, ScoreValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PLOTTED = ("auroc", "accuracy", "failure_auroc", "referral_accuracy_area", "brier")
"""Scores that `plot` draws unless others are named: all between 0 and 1."""

SCHEMA = "retinabench.scores/1"
REFERRED = (0.0, 0.5, 0.7)  # Fractions referred at which `referral` and `retained` are given.


@dataclass(frozen=True)
class SetScores(Tabular, Document):
    """The scores of one set, by attribute (`.auroc`) and by name (`["auroc"]`).

    Args:
        images: Number of images.
        patients: Number of patients; None where they are not known.
        positives: Number of images with label 1.
        scores: Score name -> value.
        referral: Metric -> fraction referred, as text -> value of the retained images.
        calibration: The calibration line, the parts of the Brier score and calibration errors; None under the published
            rules, as are the following.
        retained: Fraction referred, as text -> retained images of each class.
        controls: `random` and `oracle` -> summaries of the same predictions in these orders of referral.
        baseline: What the model adds to predicting the same for every image; None for the balanced set.
        grades: Scores of the five grade probabilities, and sets of grades; None where the file has no grades or none of these.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> found = rb.score(predictions, bootstrap=0)["in_domain"]
        >>> found["accuracy"].value, found.referral["accuracy"]["0.5"]
        (0.5, 1.0)
    """

    _optional = ("calibration", "retained", "controls", "baseline", "grades")

    images: int
    patients: int | None
    positives: int
    scores: Mapping[str, ScoreValue]
    referral: Mapping[str, Mapping[str, float]]
    calibration: SetCalibration | None = None
    retained: Mapping[str, Mapping[str, float]] | None = None
    controls: Mapping[str, Mapping[str, float]] | None = None
    baseline: Baseline | None = None
    grades: GradeScores | None = None

    def __getitem__(self, name: str) -> ScoreValue:
        if name not in self.scores:
            raise KeyError(f"no score '{name}' on this set. {nearest(name, self.scores)}")
        return self.scores[name]

    def __getattr__(self, name: str) -> ScoreValue:
        if name.startswith("_") or name not in self.scores:
            raise AttributeError(f"no score '{name}' on this set")
        return self.scores[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.scores]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def records(self) -> list[Row]:
        rows: list[Row] = []
        for name, score in self.scores.items():
            row: Row = {"score": SCORES[name].label, "direction": SCORES[name].direction}
            rows.append(row | {key: getattr(score, key) for key in ("value", "low", "high", "why")})
        return rows

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        """Draw scores of these names with their intervals on `axes` (None: a new figure); those that the set lacks are left out."""
        return draw_intervals(self.interval_rows(scores), axes)

    def interval_rows(self, names: Sequence[str], ending: str = "") -> list[IntervalRow]:
        """Return a line of a plot for each of these scores that the set has; `ending` follows its label."""
        check_known("score", names, list(SCORES))
        found = [(SCORES[name].label, self.scores[name]) for name in names if name in self.scores]
        return [IntervalRow(label + ending, one.value, one.low, one.high) for label, one in found]


@dataclass(frozen=True, repr=False)
class Scores(Tabular):
    """All scores of one predictions file: `scores["in_domain"].auroc.value`.

    Args:
        rules: `corrected` or `published`.
        uncertainty: What ordered the referral.
        bootstrap: Number of bootstrap replicates; 0 where there are no intervals.
        seed: Seed of the bootstrap.
        sets: Set name -> its scores, for the sets that exist; see `docs/scores.md`.
        notes: What a reader of the numbers must know.
        metadata: What the file says of its origin.
        source: The file.
        threshold: The decision threshold.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> scores = rb.score(predictions, bootstrap=0)
        >>> scores["in_domain"].auroc.value
        0.75
        >>> scores["in_domain"].images
        4
    """

    rules: str
    uncertainty: str
    bootstrap: int
    seed: int
    sets: Mapping[str, SetScores]
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    source: str | None = None
    threshold: FrozenThreshold = ABOVE_HALF

    def __getitem__(self, name: str) -> SetScores:
        if name not in self.sets:
            raise KeyError(f"no set '{name}' in this file. {nearest(name, self.sets)}")
        return self.sets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sets)

    def __repr__(self) -> str:
        sets = ", ".join(f"{name}: {one.images} images" for name, one in self.sets.items())
        return f"Scores({self.source or 'predictions'}, {self.rules} rules, {sets})"

    def value(self, name: str, set: str = "in_domain") -> float:
        """Return one score of one set, NaN where undefined."""
        return self[set][name].value

    def records(self) -> list[Row]:
        return [{"set": SET_LABELS[name], **row} for name, one in self.sets.items() for row in one.records()]

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        """Draw scores of every set as `SetScores.plot` does."""
        rows = [
            row
            for score in scores
            for name, one in self.sets.items()
            for row in one.interval_rows([score], f", {SET_LABELS[name].lower()}")
        ]
        return draw_intervals(rows, axes)

    def to_dict(self) -> JsonObject:
        """Return what `retinabench score --json` writes: only dictionaries, lists, text, finite numbers and None."""
        shown_here = {"source": self.source and shown(self.source), "metadata": _plain_metadata(self.metadata)}
        return {"schema": SCHEMA, **json_content(vars_of(self) | shown_here)}


def check_known(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise InputError(f"unknown {kind} '{name}'", hint=nearest(name, known))


def _plain_metadata(metadata: Mapping[str, object]) -> object:
    """Metadata of any origin as valid JSON: NaN and infinity become None, other objects their text."""
    return json.loads(json.dumps(dict(metadata), default=str), parse_constant=lambda _: None)
