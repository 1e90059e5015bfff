"""`score` and `referral_curve`: the scores of a predictions file, and one curve from arrays, under either rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics import published, referral_curves
from retinabench.metrics.bootstrap import Steps, check_level, check_seed, cluster_bootstrap, one_blas_thread
from retinabench.metrics.calibration import set_calibration
from retinabench.metrics.clinical.screening_report import baseline_of
from retinabench.metrics.clinical.thresholds import DEFAULT, DecisionThreshold, FrozenThreshold
from retinabench.metrics.image_sets import (
    ImageSet,
    SetEvaluator,
    image_sets,
    inversion_notes,
    uncertainty_inversion_notes,
)
from retinabench.metrics.intervals import Ends
from retinabench.metrics.referral_curves import METRICS, Curve, Metric
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.score_results import REFERRED, RetainedImages, Scores, ScoreValue, SetScores
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import EPS, MANY, Cases, Weighted
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]

MAIN_CURVES = ("accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence")

CONTROL_CURVES = ("accuracy", "nll", "auroc")

CONTROL_SUMMARIES = ("rc_index", "aurc", "e_aurc", "augrc")


def interval_of(spec: ScoreSpec, whole: Weighted, value: float, draws: Floats, level: float) -> Ends:
    """Return the interval of one score on one set, or why it has no value or no interval.

    Shapes: `draws` (R,).
    """
    if not np.isfinite(value):
        return Ends(why=spec.why_undefined(whole))
    return spec.interval.ends([whole], value, draws, level) if len(draws) else Ends()


class BootstrapSettings(NamedTuple):
    """How intervals are computed, and the scores whose replicates (R, K) are kept, by the name of the set."""

    replicates: int
    seed: int
    level: float
    workers: int | None
    wanted: Sequence[ScoreSpec]
    kept: dict[str, Floats]


def scored_sets(
    sets: list[ImageSet],
    validation: Predictions | None,
    settings: BootstrapSettings,
    advance: Callable[[int], None] | None,
) -> dict[str, SetScores]:
    """Return the scores of every set by the corrected rules."""
    work = settings.replicates * sum(map(len, sets))
    done = Steps(advance or (lambda steps: None), settings.replicates, max(work, 1))
    found: dict[str, SetScores] = {}
    with one_blas_thread():
        while sets:
            name = sets[0].name
            found[name] = _scored(sets.pop(0), validation, settings, done)
    return found


def _scored(
    images: ImageSet, validation: Predictions | None, settings: BootstrapSettings, done: Steps
) -> SetScores:
    """Return all scores of one set by the corrected rules."""
    bootstrap, seed, level = settings[:3]
    whole = images.whole
    curves = {metric: _read(referral_curves.curve_of(whole, metric)) for metric in MAIN_CURVES}
    areas = {f"referral_{metric}_area": curve for metric, curve in curves.items()}
    point = np.array([areas[s.name].area if s.name in areas else s(whole) for s in images.scores])
    draws = _replicates(images, point, settings, done)
    scores = {}
    for spec, value, column in zip(images.scores, point.tolist(), draws.T, strict=True):
        low, high, why = interval_of(spec, whole, value, column, level)
        reach = areas[spec.name].reach if spec.name in areas else None
        scores[spec.name] = ScoreValue(value, low, high, spec.version, reach, why)
    cases, weight = images.cases, whole.weight
    retained = {f"{r:g}": _classes(whole, r) for r in REFERRED}
    whole.forget_curves()
    if len(cases) > MANY:
        cases.forget()
    calibration = set_calibration(whole, seed, level)
    baseline = None
    if images.name != "balanced":
        baseline = baseline_of(whole, validation, bootstrap=bootstrap, seed=seed, level=level)
    del whole
    return SetScores(
        len(images),
        images.patients,
        images.positives,
        scores,
        referral={metric: curve.referral for metric, curve in curves.items()},
        calibration=calibration,
        retained=retained,
        controls={
            "random": _control(cases, np.zeros(len(cases)), weight),
            "oracle": _control(cases, cases.error, weight),
        },
        baseline=baseline,
    )


def _replicates(images: ImageSet, point: Floats, settings: BootstrapSettings, done: Steps) -> Floats:
    """The bootstrap replicates (R, K) of the scores whose intervals need them, NaN of the others; those wanted are kept."""
    replicates = settings.replicates
    draws = np.full((replicates, len(point)), np.nan)
    columns = [k for k, spec in enumerate(images.scores) if spec.interval.resampled]
    wanted = settings.wanted if images.name != "balanced" else ()
    if replicates:
        statistic = SetEvaluator(
            images,
            [*(images.scores[k] for k in columns), *wanted],
            np.append(point[columns], [spec(images.whole) for spec in wanted]),
        )
        found = cluster_bootstrap(
            statistic, images.cluster, replicates=replicates, seed=settings.seed, workers=settings.workers,
            advance=lambda rows: done.add(rows * len(images)),
        )  # fmt: skip
        draws[:, columns] = found[:, : len(columns)]
        if wanted:
            settings.kept[images.name] = found[:, len(columns) :]
    return draws


class ReadCurve(NamedTuple):
    """What is shown of a curve: its area, how far it enters it (None unless it ranks classes), and its value by fraction referred."""

    area: float
    reach: float | None
    referral: dict[str, float]


def _read(curve: Curve) -> ReadCurve:
    reach = curve.reach if referral_curves.ranks_classes(curve.metric) else None
    return ReadCurve(curve.area, reach, {f"{r:g}": curve.at(r) for r in REFERRED})


def _classes(w: Weighted, referred: float) -> RetainedImages:
    """The retained images where this fraction is referred."""
    count = len(w.points)
    fractions = np.arange(count) / count
    if fractions[-1] < referred:
        return RetainedImages(np.nan, np.nan)
    k = count - 1 - int(np.argmax(fractions >= referred - 1e-9))
    return RetainedImages(float(w.retained_positives[k]), float(w.retained_negatives[k]))


def _control(cases: Cases, uncertainty: Floats | NDArray[np.bool_], weight: Floats) -> dict[str, float]:
    """Summaries of the same predictions in another order of referral, for the same axes."""
    other = cases.reordered(uncertainty).weighted(weight)
    values = {f"referral_{metric}_area": referral_curves.area_of(other, metric) for metric in CONTROL_CURVES}
    return values | {name: SCORES[name](other) for name in CONTROL_SUMMARIES}


Rules = Literal["corrected", "published"]

RULES: tuple[Rules, ...] = get_args(Rules)


@dataclass(frozen=True)
class ScoreSettings:
    """What decides the scores of a file: arguments of `retinabench.score`.

    Attributes:
        rules: "corrected" or "published".
        bootstrap: Number of replicates over patients for every interval.
        seed: Seed of the bootstrap.
        uncertainty: What orders the referral.
        threshold: The decision threshold; a rule chooses it for each file.
    """

    rules: Rules = "corrected"
    bootstrap: int = 1000
    seed: int = 0
    uncertainty: str = "auto"
    threshold: DecisionThreshold | float | str = DEFAULT

    def __post_init__(self) -> None:
        check_rules(self.rules)
        if self.bootstrap < 0:
            raise InputError(
                f"{self.bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more."
            )
        check_seed(self.seed)


def score(
    predictions: Predictions,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    uncertainty: str = "auto",
    *,
    threshold: DecisionThreshold | float | str = DEFAULT,
    level: float = 0.95,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Scores:
    """Score the test split of a predictions file, in the sets (see `docs/scores.md`) that the file holds.

    Args:
        predictions: The predictions.
        rules: `corrected`, or `published` for the released Retina Benchmark's protocol, faults included, which has no
            intervals.
        bootstrap: Replicates over patients for the intervals that need them; 0 for no intervals at all.
        seed: Seed of the bootstrap, or of the random duplication of shifted images under the published rules.
        uncertainty: What orders the referral: `auto` (the file's own column where it has one, else total), `own`,
            `total`, `epistemic`, `aleatoric`, `variance`, `max_probability` or `margin` (to the decision threshold).
        threshold: From which probability on an image counts as referable, or what chooses it; see `DecisionThreshold`.
        level: Level of the intervals.
        workers: Threads; None for one per core. No number depends on it.
        advance: Called with the number of further replicates that are done, in all sets together.

    Returns:
        The scores of every set.

    Raises:
        InputError: There is no test split, or an argument is not known.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> rb.score(predictions, bootstrap=0)["in_domain"].accuracy.value
        0.5
    """
    settings = ScoreSettings(rules, bootstrap, seed, uncertainty, threshold)
    held = [predictions]
    del predictions
    return _scores_and_replicates(held, settings, (), level, workers, advance)[0]


def score_and_replicates(
    predictions: Predictions,
    settings: ScoreSettings,
    wanted: Sequence[ScoreSpec] = (),
) -> tuple[Scores, dict[str, Floats]]:
    """Return what `score` does, and the bootstrap replicates (R, K) of K scores by the name of the set."""
    return _scores_and_replicates([predictions], settings, wanted)


def _scores_and_replicates(
    held: list[Predictions],
    settings: ScoreSettings,
    wanted: Sequence[ScoreSpec],
    level: float = 0.95,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> tuple[Scores, dict[str, Floats]]:
    """Do the work of both; `held` has the predictions alone, and is emptied: the ids of millions of images are larger than all else."""
    check_level(level)
    predictions = held.pop()
    seed, rules = settings.seed, settings.rules
    cut = frozen_threshold(predictions, settings.threshold, rules)
    test = _test_split(predictions)
    values, name = referral_uncertainty(
        test, settings.uncertainty, exact=rules == "published", threshold=cut.value
    )
    notes = [*test.notes, *_notes(test, values, name, cut)]
    sets: Mapping[str, SetScores]
    replicates: dict[str, Floats] = {}
    about = test.metadata, test.source
    bootstrap = settings.bootstrap if rules == "corrected" else 0
    if rules == "published":
        sets = published.score_sets(test, values, seed)
        notes.append("the published protocol has no intervals")
    else:
        found = image_sets(test, values, cut.value)
        tuning = predictions.select(domain="in_domain", split="validation")
        del predictions, test, values
        intervals = BootstrapSettings(bootstrap, seed, level, workers, wanted, replicates)
        sets = scored_sets(found, tuning, intervals, advance)
    notes += _inverted(sets, name)
    return Scores(rules, name, bootstrap, seed, sets, tuple(notes), *about, cut), replicates


def referral_curve(
    label: ArrayLike,
    prob: ArrayLike,
    uncertainty: ArrayLike,
    metric: Metric,
    rules: Rules = "corrected",
    weight: ArrayLike | None = None,
) -> Curve:
    """Return the curve of a metric over the fraction of images referred.

    Corrected values equal scikit-learn on the retained images at every count, to 1e-12. AUPRC is average precision. The
    area is the plain mean over all counts; AUROC and AUPRC average only the counts at which at least 10 images of each
    class remain (`reach` says how far that is), and are NaN with a `why` where the set has too few. Models that retain
    different images are not ordered by these values alone: read sensitivity and prevalence of the retained beside them.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        uncertainty: (N,), the largest is referred first.
        metric: One of `METRICS`; NLL is in nats.
        rules: `corrected`, or `published` for the released Retina Benchmark's code (accuracy, nll, auroc and auprc; no
            weights), see `docs/deviations.md`.
        weight: (N,) images that each row stands for; whole numbers equal repetition.

    Returns:
        The curve; nothing is referred at its first point.

    Raises:
        InputError: The arrays do not fit each other, or the metric or the rules are not known.

    Examples:
        >>> import retinabench as rb
        >>> curve = rb.referral_curve([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.2], [0.3, 0.2, 0.9, 0.4], "accuracy")
        >>> curve.value.tolist()
        [0.75, 1.0, 1.0, 1.0]
        >>> curve.area
        0.9375
    """
    check_rules(rules)
    if rules == "published":
        if weight is not None:
            raise InputError("the published rules know no weights", hint="Use rules='corrected'.")
        Cases(label, prob, uncertainty)  # the same inputs are refused
        return published.referral_curve(label, prob, uncertainty, metric)
    if metric not in METRICS:
        raise InputError(f"unknown metric '{metric}'", hint=nearest(metric, METRICS))
    return referral_curves.curve_of(Cases(label, prob, uncertainty).weighted(weight), metric)


def check_rules(rules: str) -> None:
    """Raise `InputError` for unknown rules."""
    if rules not in RULES:
        raise InputError(f"unknown rules '{rules}'", hint=nearest(rules, RULES))


def frozen_threshold(
    predictions: Predictions, threshold: DecisionThreshold | float | str, rules: str = "corrected"
) -> FrozenThreshold:
    """Return the decision threshold for a file."""
    asked = DecisionThreshold.parse(threshold)
    if rules == "published" and asked != DecisionThreshold():
        raise InputError(
            f"the published rules know no threshold but {DEFAULT}", hint="Leave --threshold or --rules out."
        )
    return asked.freeze(predictions)


def _test_split(predictions: Predictions) -> Predictions:
    test = predictions.select(split="test")
    if test is None:
        raise InputError(
            "holds no image of the test split",
            file=predictions.source,
            hint="Scores are of the test split; leave the column 'split' out if all images belong to it.",
        )
    return test


def _described(name: str) -> str:
    return "the file's own column 'uncertainty'" if name == "own" else f"{name.replace('_', ' ')} uncertainty"


def _inverted(sets: Mapping[str, SetScores], ordered_by: str) -> list[str]:
    notes = []
    for name in ("in_domain", "shifted"):
        if name in sets and (one := sets[name].scores.get("auroc")) is not None:
            notes += inversion_notes(name, one.value, one.high)
        if (
            ordered_by == "own"
            and name in sets
            and (one := sets[name].scores.get("failure_auroc")) is not None
        ):
            notes += uncertainty_inversion_notes(name, one.value, one.high)
    return notes


def _notes(test: Predictions, values: Floats, name: str, cut: FrozenThreshold) -> list[str]:
    notes = [] if cut.note is None else [cut.note]
    notes.append(f"referral is ordered by: {_described(name)}")
    if cut.value != DEFAULT and name in ("total", "max_probability"):
        notes.append(
            f"{_described(name)} is largest at 0.5, not at the threshold; "
            "--uncertainty margin refers the images nearest to the threshold first"
        )
    if test.patient_id is None:
        notes.append("no patient_id: every image is its own cluster, intervals may be too narrow")
    if name in ("epistemic", "variance") and test.samples == 1:
        notes.append(f"one sample per image: its {name} uncertainty is 0, referral is random")
    saturated = int(np.count_nonzero((test.prob < EPS) | (test.prob > 1 - EPS)))
    if saturated:
        certain = "all" if saturated == len(test) else f"{saturated}"
        notes.append(f"{certain} images have probability 0 or 1: clipped to {EPS:g} in the NLL")
    if saturated == len(test):
        notes.append("WARNING: the probabilities look like decisions: give P(referable) before the threshold")
    ordered = np.sort(values)
    distinct = int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1
    if distinct < len(values):
        notes.append(
            f"{len(values):,} images have {distinct:,} distinct "
            f"{'uncertainty' if distinct == 1 else 'uncertainties'}: ties are shared evenly"
        )
    return notes
