"""`score`, `evaluate` and `referral_curve`: the scores of a predictions file or an estimator, and one curve from arrays, under either rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics import published, referral_curves
from retinabench.metrics.calibration import calibration_line_of, correct_prior, ece_positive_class_of, set_calibration
from retinabench.metrics.classification import (
    accuracy_of,
    brier_skill_of,
    false_alarm_price,
    net_benefit_gain_of,
    sensitivity_of,
)
from retinabench.metrics.clinical.groups import named_groups
from retinabench.metrics.decisions import DEFAULT, DecisionThreshold, FrozenThreshold, referral_uncertainty
from retinabench.metrics.grades import GradeScores, grade_scores
from retinabench.metrics.image_sets import (
    REFERRED,
    SET_LABELS,
    Baseline,
    ImageSet,
    PriorCorrection,
    Scores,
    SetEvaluator,
    SetScores,
    image_sets,
    order_notes,
    replicates_of,
)
from retinabench.metrics.intervals import Interval
from retinabench.metrics.referral_curves import METRICS, Curve, Metric
from retinabench.metrics.registry import SCORES, Ends, ScoreSpec, ScoreValue
from retinabench.metrics.weighted_images import (
    EPS,
    MANY,
    Cases,
    Floats,
    Weighted,
    check_level,
    check_seed,
    cluster_bootstrap,
    in_steps,
    one_blas_thread,
    ratio,
)
from retinabench.predictions.check import without_patients
from retinabench.predictions.table import Predictions

Rules = Literal["corrected", "published"]
RULES: tuple[Rules, ...] = get_args(Rules)
MAIN_CURVES = ("accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence")
# Scores of the same predictions in a random and in the oracle's order of referral.
CONTROLS = ("referral_accuracy_area", "referral_nll_area", "referral_auroc_area", "rc_index", "aurc", "e_aurc", "augrc")


@dataclass(frozen=True)
class ScoreSettings:
    """What decides the scores of a file: arguments of `retinabench.score`."""

    rules: Rules = "corrected"  # "corrected" or "published"
    bootstrap: int = 1000  # number of replicates over patients for every interval
    seed: int = 0  # seed of the bootstrap
    uncertainty: str = "auto"  # what orders the referral
    threshold: DecisionThreshold | float | str = DEFAULT  # the decision threshold; a rule chooses it for each file

    def __post_init__(self) -> None:
        check_rules(self.rules)
        if self.bootstrap < 0:
            raise InputError(f"{self.bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more.")
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
    predictions: Predictions, settings: ScoreSettings, wanted: Sequence[ScoreSpec] = ()
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
    """Shared body. Pops `held` so that the ids are freed early: those of millions of images are larger than all else."""
    check_level(level)
    predictions = held.pop()
    seed, rules = settings.seed, settings.rules
    cut = frozen_threshold(predictions, settings.threshold, rules)
    test = predictions.select(split="test")
    if test is None:
        hint = "Scores are of the test split; leave the column 'split' out if all images belong to it."
        raise InputError("holds no gradable image of the test split", file=predictions.source, hint=hint)
    values, name = referral_uncertainty(test, settings.uncertainty, exact=rules == "published", threshold=cut.value)
    notes = [*test.notes, *_leaks(predictions, test), *_notes(test, values, name, cut)]
    sets: Mapping[str, SetScores]
    replicates: dict[str, Floats] = {}
    about = test.metadata, test.source
    bootstrap = settings.bootstrap if rules == "corrected" else 0
    if rules == "published":
        sets = published.score_sets(test, values, seed)
        notes.append("the published protocol has no intervals")
    else:
        parts = image_sets(test, values, cut.value)
        tuning = predictions.select(domain="in_domain", split="validation")
        settings_of_intervals = _Bootstrap(bootstrap, seed, level, workers, wanted, replicates)
        graded = _graded_sets(test, values, tuning, cut.value, settings_of_intervals)
        del predictions, test, values
        sets = scored_sets(parts, tuning, settings_of_intervals, advance)
        sets = {name: replace(one, grades=graded.get(name)) for name, one in sets.items()}
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
    area is the plain mean over all counts; that of AUROC and AUPRC is the mean over the counts that refer at most half of the
    images, NaN with a `why` unless both classes remain there. Models that retain
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
        >>> round(curve.area, 12)
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
    if rules not in RULES:
        raise InputError(f"unknown rules '{rules}'", hint=nearest(rules, RULES))


def frozen_threshold(
    predictions: Predictions, threshold: DecisionThreshold | float | str, rules: str = "corrected"
) -> FrozenThreshold:
    asked = DecisionThreshold.parse(threshold)
    if rules == "published" and asked != DecisionThreshold():
        hint = "Leave --threshold or --rules out."
        raise InputError(f"the published rules know no threshold but {DEFAULT}", hint=hint)
    return asked.freeze(predictions)


def _leaks(predictions: Predictions, test: Predictions) -> list[str]:
    """A warning if patients are in both splits, such as the right eye in one and the left eye in the other."""
    validation = predictions.select(split="validation")
    if validation is None or validation.patient_id is None or test.patient_id is None:
        return []
    both = len(np.intersect1d(validation.patient_id, test.patient_id))
    in_both = "in the validation and in the test split; if anything was chosen on validation, the scores are too good"
    return [f"WARNING: patients {in_both}: {both}. Split by patient"] if both else []


def _inverted(sets: Mapping[str, SetScores], ordered_by: str) -> list[str]:
    notes = []
    for name in ("in_domain", "shifted"):
        scores = sets[name].scores if name in sets else {}
        if "auroc" in scores:
            notes += order_notes(SET_LABELS[name], scores["auroc"])
        own = scores.get("failure_auroc") if ordered_by == "own" else None
        if own is not None and own.value < 0.4 and own.high < 0.5:
            notes.append(
                f"WARNING: the column 'uncertainty' looks inverted: {SET_LABELS[name]} failure AUROC {own.value:.2f} is far below "
                "0.5. Larger values must mean less certain images: a confidence needs its sign changed"
            )
        elif own is not None and own.value == 1 and own.low > 0.5:
            notes.append(
                f"{SET_LABELS[name].lower()}: the column 'uncertainty' is higher for every wrong prediction than for any right one: "
                "was it computed from the labels?"
            )
    return notes


def _notes(test: Predictions, values: Floats, name: str, cut: FrozenThreshold) -> list[str]:
    notes = [] if cut.note is None else [cut.note]
    described = "the file's own column 'uncertainty'" if name == "own" else f"{name.replace('_', ' ')} uncertainty"
    notes.append(f"referral is ordered by: {described}")
    if cut.value != DEFAULT and name in ("total", "max_probability"):
        notes.append(
            f"{described} is largest at 0.5, not at the threshold; "
            "--uncertainty margin refers the images nearest to the threshold first"
        )
    if test.patient_id is None:
        notes.append(without_patients(test.image_id.tolist()))
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
    if distinct == 1 < len(values):
        notes.append(f"all {len(values):,} images have the same uncertainty: it cannot tell which to refer")
    elif distinct < len(values):
        notes.append(f"{len(values):,} images have {distinct:,} distinct uncertainties: ties are shared evenly")
    return notes


class _Bootstrap(NamedTuple):
    """How intervals are computed, and the scores whose replicates (R, K) are kept, by the name of the set."""

    replicates: int
    seed: int
    level: float
    workers: int | None
    wanted: Sequence[ScoreSpec]
    kept: dict[str, Floats]


def interval_of(spec: ScoreSpec, whole: Weighted, value: float, draws: Floats, level: float) -> Ends:
    """Return the interval of one score on one set from its replicates (R,), or why it has no value or no interval."""
    if not np.isfinite(value):
        return Ends(why=spec.why_undefined(whole))
    return spec.interval.ends([whole], value, draws, level) if len(draws) else Ends()


def _graded_sets(
    test: Predictions, uncertainty: Floats, validation: Predictions | None, cut: float, bootstrap: _Bootstrap
) -> dict[str, GradeScores | None]:
    found = {}
    for name in ("in_domain", "shifted", "joint") if test.grade_prob is not None else ():
        rows = np.flatnonzero(np.ones(len(test), bool) if name == "joint" else test.domain == name)
        if len(rows):
            part = test.take(rows)
            found[name] = grade_scores(
                part, uncertainty[rows], validation, named_groups(part), threshold=cut, bootstrap=bootstrap.replicates,
                seed=bootstrap.seed, level=bootstrap.level, workers=bootstrap.workers,
            )  # fmt: skip
    return found


def scored_sets(
    sets: list[ImageSet], validation: Predictions | None, bootstrap: _Bootstrap, advance: Callable[[int], None] | None
) -> dict[str, SetScores]:
    """Return the scores of every set. The list is emptied: the indexes of a million images take several hundred megabytes."""
    done = in_steps(advance, bootstrap.replicates, bootstrap.replicates * sum(map(len, sets)))
    scored: dict[str, SetScores] = {}
    with one_blas_thread():
        while sets:
            name = sets[0].name
            scored[name] = _scored(sets.pop(0), validation, bootstrap, done)
    return scored


def _scored(
    images: ImageSet, validation: Predictions | None, bootstrap: _Bootstrap, done: Callable[[float], None]
) -> SetScores:
    seed, level = bootstrap.seed, bootstrap.level
    whole = images.whole
    curves = {metric: referral_curves.curve_of(whole, metric) for metric in MAIN_CURVES}
    referral = {metric: {f"{r:g}": curve.at(r) for r in REFERRED} for metric, curve in curves.items()}
    accuracy = curves["accuracy"]
    retained = {
        f"{r:g}": {"positives": accuracy.at(r, "positives"), "negatives": accuracy.at(r, "negatives")} for r in REFERRED
    }
    del curves, accuracy
    point = np.array([spec(whole) for spec in images.scores])
    draws = _replicates(images, point, bootstrap, done)
    scores = {}
    for spec, value, column in zip(images.scores, point.tolist(), draws.T, strict=True):
        low, high, why = interval_of(spec, whole, value, column, level)
        scores[spec.name] = ScoreValue(value, low, high, spec.version, why)
    whole.forget()
    if len(images) > MANY:
        images.cases.forget()
    calibration = set_calibration(whole, seed, level)
    baseline = None
    if images.name != "balanced":
        baseline = baseline_of(whole, validation, bootstrap=bootstrap.replicates, seed=seed, level=level)
    cases, weight = images.cases, whole.weight
    del whole
    controls = {}
    for control, order in (("random", np.zeros(len(images))), ("oracle", cases.error)):
        w = cases.reordered(order).weighted(weight)
        controls[control] = {name: float(SCORES[name](w)) for name in CONTROLS}
    sizes = len(images), images.patients, images.positives
    return SetScores(*sizes, scores, referral, calibration, retained, controls, baseline)


def _replicates(images: ImageSet, point: Floats, bootstrap: _Bootstrap, done: Callable[[float], None]) -> Floats:
    """The bootstrap replicates (R, K) of the scores whose intervals need them, NaN of the others; those wanted are kept."""
    draws = np.full((bootstrap.replicates, len(point)), np.nan)
    if not bootstrap.replicates:
        return draws
    columns = [k for k, spec in enumerate(images.scores) if spec.interval.resampled]
    wanted = bootstrap.wanted if images.name != "balanced" else ()
    whole = images.whole
    points = np.append(point[columns], [spec(whole) for spec in wanted])
    evaluator = SetEvaluator(images, [*(images.scores[k] for k in columns), *wanted], points)
    values = replicates_of(
        evaluator, images.cluster, replicates=bootstrap.replicates, seed=bootstrap.seed, workers=bootstrap.workers,
        advance=lambda rows: done(rows * len(images)),
    )  # fmt: skip
    draws[:, columns] = values[:, : len(columns)]
    if wanted:
        bootstrap.kept[images.name] = values[:, len(columns) :]
    return draws


def baseline_of(
    w: Weighted, validation: Predictions | None = None, *, bootstrap: int = 1000, seed: int = 0, level: float = 0.95
) -> Baseline:
    cases = w.cases
    codes, patients, positive = cases.patient, int(cases.patient.max()) + 1, cases.label
    price = false_alarm_price(cases.threshold)
    benefit = np.where(positive, 1.0, -price)  # of calling the image referable
    columns = None, positive, np.where(cases.called, benefit, 0.0), benefit, (cases.prob - positive) ** 2
    sums = np.stack([np.bincount(codes, column, patients) for column in columns])

    def statistic(weight: Floats) -> Floats:
        """(R, 2) gain in net benefit and Brier skill for weights (R, G) of patients."""
        count, positives, model, every, squares = np.einsum("kg,rg->kr", sums, weight)
        share = positives / count
        variance = share * (1 - share)
        return np.stack([(model - np.maximum(0.0, every)) / count, 1 - ratio(squares / count, variance)], axis=1)

    gain, skill = float(net_benefit_gain_of(w)), float(brier_skill_of(w))
    ends = [Ends(), Ends()]
    if bootstrap:
        draws = cluster_bootstrap(statistic, np.arange(patients), replicates=bootstrap, seed=seed)
        methods = SCORES["net_benefit_gain"].interval, SCORES["brier_skill"].interval
        ends = [one.ends([w], v, d, level) for one, v, d in zip(methods, (gain, skill), draws.T, strict=True)]
    answer = "referable" if w.positives > w.negatives else "not referable"
    share, ill = float(max(w.positives, w.negatives) / w.total), len(np.unique(codes[positive]))
    benefit_gain, brier_skill = (Interval(v, one.low, one.high) for v, one in zip((gain, skill), ends, strict=True))
    return Baseline(answer, share, benefit_gain, brier_skill, ill, cases.threshold, _corrected(w, validation))


def _corrected(w: Weighted, validation: Predictions | None) -> PriorCorrection | None:
    for split, source in (("validation", validation), ("test", None)):
        fitted_on = w if source is None else Cases(source.label, source.prob).weighted()
        offset = fitted_on.derived(calibration_line_of).in_the_large
        if np.isfinite(offset) and (source is not None or split == "test"):
            break
    if not np.isfinite(offset):
        return None
    prob = correct_prior(w.cases.prob, float(np.exp(-offset)))
    moved = Cases(w.cases.label, prob, threshold=w.cases.threshold).weighted()
    scores = [float(score(moved)) for score in (accuracy_of, sensitivity_of, brier_skill_of, ece_positive_class_of)]
    return PriorCorrection(float(offset), split, *scores)


# The interface of the benchmark's first edition (2019): a function from images to (mean, uncertainty), in NumPy arrays, without a file.
Estimator = Callable[[NDArray[Any]], tuple[ArrayLike, ArrayLike]]
OF_SPLITS = ("grade", "patient_id", "domain", "split")


class Split(Protocol):
    """Images with labels, in batches. May also hold grade, patient_id, domain and split, (N,) each."""

    @property
    def image_id(self) -> ArrayLike:
        """(N,) unique names, in the order of the batches."""

    @property
    def label(self) -> ArrayLike:
        """(N,) 1 = referable, else 0."""

    def batches(self) -> Iterable[ArrayLike]:
        """Arrays (B, H, W, 3), uint8 in 0 … 255 or floating point, as the estimator needs it."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A `Split` of arrays in memory: images (N, H, W, 3), label (N,), and what else is known of each image."""

    images: NDArray[Any]
    label: ArrayLike
    image_id: ArrayLike | None = None
    grade: ArrayLike | None = None
    patient_id: ArrayLike | None = None
    domain: ArrayLike | None = None
    split: ArrayLike | None = None
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.image_id is None:
            object.__setattr__(self, "image_id", np.arange(len(self.images)).astype(np.str_))

    def batches(self) -> Iterator[NDArray[Any]]:
        """Images in order, `batch_size` at a time."""
        for start in range(0, len(self.images), self.batch_size):
            yield self.images[start : start + self.batch_size]


def evaluate(
    estimator: Estimator, split: Split, rules: Rules = "corrected", bootstrap: int = 1000, seed: int = 0
) -> Scores:
    """Score an estimator on a split.

    Args:
        estimator: Images (B, H, W, 3) -> (mean, uncertainty), (B,) each: P(referable) in [0, 1], and any finite number
            that is larger for images to be referred first. uint8 images reach it as float32 in [0, 1], others as they are.
        split: Images with labels, in batches.
        rules: As in `score`.
        bootstrap: As in `score`.
        seed: As in `score`.

    Returns:
        The scores.

    Raises:
        InputError: The estimator's arrays do not fit the batch, or the batches do not fit the labels.

    Examples:
        >>> import numpy as np
        >>> import retinabench as rb
        >>> from retinabench.metrics.scoring import Arrays
        >>> images = np.linspace(0, 1, 4)[:, None, None, None] * np.ones((4, 2, 2, 3))
        >>> def estimator(batch):
        ...     mean = batch.mean(axis=(1, 2, 3))
        ...     return mean, mean * (1 - mean)
        >>> rb.evaluate(estimator, Arrays(images, label=[0, 0, 1, 1]), bootstrap=0)["in_domain"].auroc.value
        1.0
    """
    return score(predict(estimator, split), rules=rules, bootstrap=bootstrap, seed=seed)


def predict(estimator: Estimator, split: Split) -> Predictions:
    """Return the estimator's predictions on a split, to be written, scored or compared; see `evaluate`."""
    means, uncertainties = [], []
    for number, batch in enumerate(split.batches(), start=1):
        images = np.asarray(batch)
        if images.dtype == np.uint8:
            images = images.astype(np.float32) / np.float32(255)
        answer: object = estimator(images)
        if not isinstance(answer, tuple) or len(answer) != 2:
            hint = "It must return (mean, uncertainty), one number per image each."
            raise InputError(f"the estimator returned {type(answer).__name__} for batch {number}", hint=hint)
        means.append(_per_image("mean", answer[0], len(images), number))
        uncertainties.append(_per_image("uncertainty", answer[1], len(images), number))
    seen, expected = sum(map(len, means)), len(np.asarray(split.label))
    if seen != expected:
        raise InputError(f"the batches hold {seen} images, the split has {expected} labels")
    if not seen:
        raise InputError("the split holds no images")
    known = {name: values for name in OF_SPLITS if (values := getattr(split, name, None)) is not None}
    known["uncertainty"] = np.concatenate(uncertainties)
    return Predictions(np.asarray(split.image_id), np.asarray(split.label), np.concatenate(means), **known)


def _per_image(name: str, values: ArrayLike, images: int, batch: int) -> Floats:
    array = np.asarray(values)
    if array.shape == (images, 1):
        array = array[:, 0]
    if array.shape != (images,):
        problem = f"the estimator's {name} has shape {array.shape} for batch {batch} of {images} images"
        raise InputError(problem, hint="Return one number per image.")
    return array.astype(np.float64)
