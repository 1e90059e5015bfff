"""The results of `retinabench.score`, whose `to_dict` gives the JSON of the command line, and the verdict against the baseline.

The baseline predicts the same for every image, that of the larger class ("not referable" below a prevalence of one
half), and for probabilities the prevalence of the set. A model below it is worse than no model.

`baseline` in the JSON of `score` holds the larger class and its accuracy, `net_benefit_gain`, `brier_skill`, `positive_patients`, and
`corrected`, the same model with every log odds moved by `offset` so that as many images are positive as predicted. `judge` turns them into a verdict;
`docs/clinic.md` lists every verdict with its rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from retinabench.core.errors import InputError, nearest, shown
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
from retinabench.metrics.calibration import SetCalibration
from retinabench.metrics.decisions import ABOVE_HALF, FrozenThreshold
from retinabench.metrics.grades import GradeScores
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.proportions import Interval
from retinabench.metrics.registry import SCORES, ScoreValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PLOTTED = ("auroc", "accuracy", "failure_auroc", "referral_accuracy_area", "brier")
"""Scores that `plot` draws unless others are named: all between 0 and 1."""

SCHEMA = "retinabench.scores/1"
REFERRED = (0.0, 0.5, 0.7)  # Fractions referred at which `referral` and `retained` are given.


Kind = Literal[
    "one class",
    "inverted",
    "never positive",
    "always positive",
    "not useful",
    "probabilities",
    "not shown",
    "informative",
    "useful",
]

POOR = 0.7
"""An AUROC below this is called poor discrimination (Hosmer, Lemeshow and Sturdivant, Applied logistic regression, 2013)."""

FEW_PATIENTS = 10  # Fewer patients with disease than this say little about sensitivity.


@dataclass(frozen=True)
class PriorCorrection(Document):
    """The scores after every log odds is moved by `offset`, so that as many images are positive as predicted.

    Class weights in training move the log odds by the logarithm of their ratio; the order of the images stays.
    """

    offset: float
    chosen_on: str
    accuracy: float
    sensitivity: float
    brier_skill: float
    ece_positive_class: float


@dataclass(frozen=True)
class Baseline(Document):
    """The baseline of a set of images and what the model adds to it, per image."""

    answer: str
    accuracy: float
    net_benefit_gain: Interval
    brier_skill: Interval
    positive_patients: int
    threshold: float
    corrected: PriorCorrection | None


def judge(
    *, sensitivity: Interval, specificity: Interval, auroc: Interval, net_benefit_gain: Interval, brier_skill: Interval
) -> Kind:
    """Say in one word what a model is worth against the baseline; each claim needs its interval, where there is one.

    *Useful* is said of decisions alone; probabilities that beat the prevalence are *informative*.
    """
    if not (np.isfinite(sensitivity.value) and np.isfinite(specificity.value)):
        return "one class"
    if _below(auroc, 0.5):
        return "inverted"
    if sensitivity.value == 0:
        return "never positive"
    if specificity.value == 0:
        return "always positive"
    if _below(net_benefit_gain, 0) and _below(brier_skill, 0):
        return "not useful" if auroc.value < POOR else "probabilities"
    if _above_zero(net_benefit_gain):
        return "useful"
    return "informative" if _above_zero(brier_skill) else "not shown"


def _below(one: Interval, bound: float) -> bool:
    return bool((one.high if np.isfinite(one.high) else one.value) < bound)


def _above_zero(one: Interval) -> bool:
    return bool((one.low if np.isfinite(one.low) else one.value) > 0)


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
        # Metadata of any origin: NaN and infinity become None, other objects their text.
        metadata = json.loads(json.dumps(dict(self.metadata), default=str), parse_constant=lambda _: None)
        shown_here = {"source": self.source and shown(self.source), "metadata": metadata}
        return {"schema": SCHEMA, **json_content(vars_of(self) | shown_here)}


def check_known(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise InputError(f"unknown {kind} '{name}'", hint=nearest(name, known))
