"""Whether one model is better than another on the same images: paired differences and Holm's correction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.results import Document, IntervalRow, JsonObject, Row, Tabular, draw_intervals
from retinabench.core.untrusted.paths import shown
from retinabench.metrics.clinical.decision_threshold import (
    ABOVE_HALF,
    DEFAULT,
    DecisionThreshold,
    FrozenThreshold,
)
from retinabench.metrics.comparison.differences import paired_difference
from retinabench.metrics.comparison.paired import OnSet, PairedSet, align, notes_on, paired_sets
from retinabench.metrics.inference.bootstrap import check_level, check_seed
from retinabench.metrics.inference.p_values import holm
from retinabench.metrics.published.sets import score_sets
from retinabench.metrics.registry import SCORES
from retinabench.metrics.results import PLOTTED, check_known
from retinabench.metrics.score import Rules, check_rules, frozen_threshold
from retinabench.metrics.score_spec import ScoreSpec
from retinabench.metrics.sets import SET_LABELS, SETS
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NO_INTERVALS = "the published protocol has no intervals"


@dataclass(frozen=True)
class Difference(Document):
    """A score of two models and their difference a - b; NaN where undefined, with the reason in `why`.

    Args:
        a: Value of the first model.
        b: Value of the second model.
        difference: a - b.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p: Two-sided p-value of "no difference".
        p_holm: The same after Holm's correction over all scores of the set.
        better: `a` or `b` where `p_holm` lies below 1 - level, else None.
        version: Version of the score.
        why: Why a number is undefined.

    Examples:
        >>> import retinabench as rb
        >>> first = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> second = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])
        >>> found = rb.compare(first, second, bootstrap=0)["in_domain"]["auroc"]
        >>> found.a, found.b
        (0.75, 1.0)
    """

    _optional = ("why",)

    a: float
    b: float
    difference: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    p_holm: float = np.nan
    better: str | None = None
    version: int = 1
    why: str | None = None


class SetComparison(OnSet[Difference]):
    """The differences on one set, by score.

    Args:
        images: Number of images.
        patients: Number of patients; None where they are not known.
        positives: Number of images with label 1.
        scores: Name of a score -> the difference.

    Examples:
        >>> import retinabench as rb
        >>> model = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.6])
        >>> rb.compare(model, model, bootstrap=0)["in_domain"].images
        2
    """


@dataclass(frozen=True)
class Comparison(Tabular, Document):
    """Differences a - b of every score on every set: `comparison["in_domain"]["auroc"].difference`.

    Args:
        a: Name of the first model.
        b: Name of the second model.
        rules: `corrected` or `published`.
        bootstrap: Number of bootstrap replicates.
        seed: Seed of the bootstrap.
        level: Level of the intervals.
        sets: Set name -> differences.
        notes: What a reader of the numbers must know.
        thresholds: The decision thresholds of the two models.

    Examples:
        >>> import retinabench as rb
        >>> first = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> second = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])
        >>> comparison = rb.compare(first, second, bootstrap=0, scores=["auroc"])
        >>> comparison["in_domain"]["auroc"].difference
        -0.25
    """

    a: str
    b: str
    rules: str
    bootstrap: int
    seed: int
    level: float
    sets: Mapping[str, SetComparison]
    notes: tuple[str, ...] = ()
    thresholds: tuple[FrozenThreshold, FrozenThreshold] = (ABOVE_HALF, ABOVE_HALF)

    def __getitem__(self, name: str) -> SetComparison:
        return self.sets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sets)

    def records(self) -> list[Row]:
        """Return one dictionary per set and score."""
        return [
            {"set": SET_LABELS[name], "score": SCORES[key].label, **vars(found)}
            for name, one in self.sets.items()
            for key, found in one.scores.items()
        ]

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        """Draw the differences a - b with their intervals.

        Args:
            axes: Where to draw; None: a new figure.
            scores: Names of the scores; those that were not compared are left out.

        Returns:
            The axes.
        """
        check_known("score", scores, list(SCORES))
        rows = [
            IntervalRow(f"{SCORES[key].label}, {SET_LABELS[name].lower()}", one.difference, one.low, one.high)
            for key in scores
            for name, compared in self.sets.items()
            if (one := compared.scores.get(key))
        ]
        return draw_intervals(rows, axes, label=f"{self.a} - {self.b}", zero=True)

    def to_dict(self) -> JsonObject:
        """Return what `retinabench compare --json` writes."""
        return {"schema": "retinabench.comparison/1", **super().to_dict()}


def compare(
    a: Predictions,
    b: Predictions,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    threshold: DecisionThreshold | float | str = DEFAULT,
    level: float = 0.95,
) -> Comparison:
    """Return the paired, patient-clustered differences a - b of every score.

    Both files must hold the same test images, in any order, with the same truth. Each replicate scores both models on the
    same patients. Where p-values come from: `metrics.comparison.differences`.

    Args:
        a: Predictions of the first model.
        b: Predictions of the second model.
        rules: `corrected`, or `published` for values of the published protocol, which has no intervals.
        bootstrap: Number of replicates; 0 for values without intervals.
        seed: Seed of the bootstrap.
        scores: Names of scores; None for all of `score`.
        sets: Names of sets; None for all.
        uncertainty: What orders the referral, as in `score`.
        threshold: The decision threshold, as in `score`; a rule chooses it for each model on its own file.
        level: Level of the intervals.

    Returns:
        The differences of every set.

    Raises:
        InputError: Images, labels, domains, grades or patients differ; the message names the first.

    Examples:
        >>> import retinabench as rb
        >>> model = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.6])
        >>> rb.compare(model, model, bootstrap=0)["in_domain"]["accuracy"].difference
        0.0
    """
    check_rules(rules)
    check_known("score", scores, list(SCORES))
    check_known("set", sets, SETS)
    _check_intervals(bootstrap, seed, level)
    cuts = [frozen_threshold(model, threshold, rules) for model in (a, b)]
    first, second = align([a, b])
    names = _names(a, b)
    notes = notes_on([first, second], names, uncertainty, cuts)
    if rules == "published":
        table = _published(first, second, scores, sets, uncertainty, seed)
        return Comparison(*names, rules, 0, seed, level, table, (*notes, NO_INTERVALS))
    options: Any = {"scores": scores, "sets": sets, "bootstrap": bootstrap, "seed": seed}
    options |= {"uncertainty": uncertainty, "thresholds": [cut.value for cut in cuts]}
    paired = paired_sets([first, second], **options)
    found = {one.name: _compared(one, level) for one in paired}
    return Comparison(*names, rules, bootstrap, seed, level, found, notes, (cuts[0], cuts[1]))


def _check_intervals(bootstrap: int, seed: int, level: float) -> None:
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more.")
    check_seed(seed)
    check_level(level)


def _names(a: Predictions, b: Predictions) -> tuple[str, str]:
    """The files of two models as reports show them, in full where that does not tell them apart."""
    first, second = shown(a.source or "a"), shown(b.source or "b")
    return (first, second) if first != second else (a.source or "a", b.source or "b")


def _compared(one: PairedSet, level: float) -> SetComparison:
    return SetComparison(one.images, one.patients, one.positives, _differences(one, level))


def _differences(one: PairedSet, level: float) -> dict[str, Difference]:
    found = [paired_difference(one, k, 0, 1, level) for k in range(len(one.scores))]
    adjusted = holm([each.p for each in found]).tolist()
    out = {}
    for k, (spec, each, p_holm) in enumerate(zip(one.scores, found, adjusted, strict=True)):
        a, b = one.point[:, k].tolist()
        undefined = [i for i in (0, 1) if not np.isfinite(one.point[i, k])]
        why = (
            f"{'ab'[undefined[0]]}: {spec.why_undefined(one.whole[undefined[0]])}" if undefined else each.why
        )
        better = _better(spec, each.difference, p_holm, 1 - level)
        numbers = each.difference, each.low, each.high, each.p, p_holm
        out[spec.name] = Difference(a, b, *numbers, better, spec.version, why)
    return out


def _better(spec: ScoreSpec, difference: float, p: float, alpha: float) -> str | None:
    if not p < alpha or difference == 0:
        return None
    return "a" if difference * spec.sign > 0 else "b"


def _published(
    a: Predictions,
    b: Predictions,
    scores: Sequence[str] | None,
    sets: Sequence[str] | None,
    uncertainty: str,
    seed: int,
) -> dict[str, SetComparison]:
    one, two = (
        score_sets(model, referral_uncertainty(model, uncertainty, exact=True)[0], seed) for model in (a, b)
    )
    table = {}
    for name, values in one.items():
        if sets is not None and name not in sets:
            continue
        found = {}
        for score, entry in values.scores.items():
            if scores is None or score in scores:
                x, y = entry.value, two[name][score].value
                why = None if np.isfinite(x - y) else "one class only"
                found[score] = Difference(x, y, x - y, version=entry.version, why=why)
        table[name] = SetComparison(values.images, values.patients, values.positives, found)
    return table
