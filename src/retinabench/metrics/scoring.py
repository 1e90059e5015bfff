"""The scores of a predictions file, under either rules: what decides them, the results, and how they come about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from retinabench.core import results
from retinabench.core.errors import InputError, nearest, shown
from retinabench.core.results import Document, IntervalRow, JsonObject, Row, Tabular, draw_intervals, json_content
from retinabench.metrics import classification, published, referral_curves, weighted_images
from retinabench.metrics.calibration import (
    SetCalibration,
    calibration_line_of,
    correct_prior,
    ece_positive_class_of,
    input_notes,
    set_calibration,
)
from retinabench.metrics.clinical.groups import named_groups
from retinabench.metrics.grades import GradeScores, grade_scores
from retinabench.metrics.image_sets import (
    ABOVE_HALF,
    DEFAULT,
    REFERRED,
    SET_LABELS,
    DecisionThreshold,
    FrozenThreshold,
    ImageSet,
    SetEvaluator,
    check_known,
    image_sets,
    order_notes,
    referral_uncertainty,
    replicates_of,
)
from retinabench.metrics.intervals import Interval
from retinabench.metrics.registry import SCORES, Ends, ScoreSpec, ScoreValue
from retinabench.metrics.weighted_images import EPS, MANY, Cases, Floats, Weighted, one_blas_thread, ratio
from retinabench.predictions.check import without_patients
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rules = Literal["corrected", "published"]
RULES: tuple[Rules, ...] = get_args(Rules)
MAIN_CURVES = ("accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence")
# Scores of the same predictions in a random and in the oracle's order of referral.
CONTROLS = ("referral_accuracy_area", "referral_nll_area", "referral_auroc_area", "rc_index", "aurc", "e_aurc", "augrc")
PLOTTED = ("auroc", "accuracy", "failure_auroc", "referral_accuracy_area", "brier")
"""Scores that `plot` draws unless others are named: all between 0 and 1."""
SCHEMA = "retinabench.scores/1"
Kind = Literal[
    "one class", "inverted", "never positive", "always positive", "not useful", "probabilities", "not shown", "informative", "useful"
]  # fmt: skip
POOR = 0.7
"""An AUROC below this is called poor discrimination (Hosmer, Lemeshow and Sturdivant, Applied logistic regression, 2013)."""
FEW_PATIENTS = 10  # Fewer patients with disease than this say little about sensitivity.


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
        weighted_images.check_seed(self.seed)


@dataclass(frozen=True)
class PriorCorrection(Document):
    """The scores after every log odds is moved by `offset`, as class weights in training move it, so that as many images are positive as predicted."""

    offset: float
    chosen_on: str
    accuracy: float
    sensitivity: float
    brier_skill: float
    ece_positive_class: float


@dataclass(frozen=True)
class Baseline(Document):
    """The baseline of a set and what the model adds to it, per image.

    The baseline predicts the same for every image, that of the larger class ("not referable" below a prevalence of one
    half), and for probabilities the prevalence of the set. A model below it is worse than no model.

    `baseline` in the JSON of `score` holds the larger class and its accuracy, `net_benefit_gain`, `brier_skill`, `positive_patients`, and
    `corrected`, the same model with every log odds moved by `offset` so that as many images are positive as predicted. `judge` turns them into a verdict;
    `docs/clinic.md` lists every verdict with its rule.
    """

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
    """Say in one word what a model is worth against the baseline: *useful* by its decisions, *informative* by its probabilities; each claim needs its interval."""
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
        bootstrap: Number of bootstrap replicates; 0 if no interval was computed.
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
        sets = [(one, f", {SET_LABELS[name].lower()}") for name, one in self.sets.items()]
        rows = [row for score in scores for one, ending in sets for row in one.interval_rows([score], ending)]
        return draw_intervals(rows, axes)

    def to_dict(self) -> JsonObject:
        """Return what `retinabench score --json` writes: only dictionaries, lists, text, finite numbers and None."""
        # Metadata of any origin: NaN and infinity become None, other objects their text.
        metadata = json.loads(json.dumps(dict(self.metadata), default=str), parse_constant=lambda _: None)
        shown_here = {"source": self.source and shown(self.source), "metadata": metadata}
        return {"schema": SCHEMA, **json_content(results.vars_of(self) | shown_here)}


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
    weighted_images.check_level(level)
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
        sets = {name: SetScores(*one) for name, one in published.score_sets(test, values, seed).items()}
        notes.append("the published protocol has no intervals")
    else:
        parts = image_sets(test, values, cut.value)
        for one in (one for one in parts if one.name in ("in_domain", "shifted")):
            of = one.cases
            notes += input_notes(SET_LABELS[one.name], of.label, of.prob, of.uncertainty, of.patient, cut.value)
        tuning = predictions.select(domain="in_domain", split="validation")
        settings_of_intervals = _Bootstrap(bootstrap, seed, level, workers, wanted, replicates)
        graded = _graded_sets(test, values, tuning, cut.value, settings_of_intervals)
        del predictions, test, values
        sets = scored_sets(parts, tuning, settings_of_intervals, advance)
        sets = {name: replace(one, grades=graded.get(name)) for name, one in sets.items()}
    notes += _inverted(sets, name)
    return Scores(rules, name, bootstrap, seed, sets, tuple(notes), *about, cut), replicates


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
    done = weighted_images.in_steps(advance, bootstrap.replicates, bootstrap.replicates * sum(map(len, sets)))
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
    price = classification.false_alarm_price(cases.threshold)
    benefit = np.where(positive, 1.0, -price)  # of calling the image referable
    columns = None, positive, np.where(cases.called, benefit, 0.0), benefit, (cases.prob - positive) ** 2
    sums = np.stack([np.bincount(codes, column, patients) for column in columns])

    def statistic(weight: Floats) -> Floats:
        """(R, 2) gain in net benefit and Brier skill for weights (R, G) of patients."""
        count, positives, model, every, squares = np.einsum("kg,rg->kr", sums, weight)
        share = positives / count
        variance = share * (1 - share)
        return np.stack([(model - np.maximum(0.0, every)) / count, 1 - ratio(squares / count, variance)], axis=1)

    gain, skill = float(classification.net_benefit_gain_of(w)), float(classification.brier_skill_of(w))
    ends = [Ends(), Ends()]
    if bootstrap:
        draws = weighted_images.cluster_bootstrap(statistic, np.arange(patients), replicates=bootstrap, seed=seed)
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
    scores = [
        float(score(moved))
        for score in (
            classification.accuracy_of,
            classification.sensitivity_of,
            classification.brier_skill_of,
            ece_positive_class_of,
        )
    ]
    return PriorCorrection(float(offset), split, *scores)
