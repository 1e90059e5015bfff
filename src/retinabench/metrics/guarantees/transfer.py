"""Choose the referral threshold on validation patients, freeze it, and report what it does on new ones.

A threshold read off the test curve is a result of the test set. Here it is chosen on the validation split, and the test
split, in domain and shifted, only says what it costs and what it yields. What is certified is the very ratio that is
reported for every set and held against its labels (`certificate.py`). Test sets are also screened for covariate shift.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import Document, IntervalRow, JsonObject, Row, Tabular, draw_intervals, json_content
from retinabench.metrics.calibration import input_notes
from retinabench.metrics.clinical.groups import FEWEST_PATIENTS, named_groups
from retinabench.metrics.clinical.screening_table import referral_view_intervals
from retinabench.metrics.follow_up import Watched, reference_values
from retinabench.metrics.guarantees.certificate import Certificate, LabelledRisk, Refutation, Verdict, certify, judge
from retinabench.metrics.guarantees.goals import TARGETS, Goal, Per, ReferralCases, as_goals
from retinabench.metrics.image_sets import DecisionThreshold, FrozenThreshold, order_notes, referral_uncertainty
from retinabench.metrics.intervals import Interval, auroc_error
from retinabench.metrics.patients import by_patient
from retinabench.metrics.weighted_images import Bools, Floats, check_draws, cluster_codes
from retinabench.predictions.check import eyes_of_one, refuse_alike, refuse_partly, without_patients
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Resemblance(Document):
    """The largest Kolmogorov-Smirnov distance of two sets, its permutation p-value, and the verdict at `level`."""

    _also = ("alarm",)

    distance: float
    p_value: float
    level: float
    permutations: int

    @property
    def alarm(self) -> bool:
        """Whether exchangeability is refuted at `level`: the guarantee is then about other patients than these."""
        return self.p_value <= self.level


def resemblance(
    values_a: ArrayLike,
    patient_a: ArrayLike | None,
    values_b: ArrayLike,
    patient_b: ArrayLike | None,
    *,
    permutations: int = 999,
    level: float = 0.05,
    seed: int = 0,
) -> Resemblance:
    """Test whether two sets of patients have the same distributions of some values, such as uncertainty and probability.

    It needs no labels, and does not test the guarantee (`docs/monitoring.md`).

    The statistic is the largest of max_t |F_a(t) - F_b(t)| over the values, F being the empirical distributions of the images. Whole
    patients are exchanged between the sets, so that the p-value (1 + #{permuted >= observed}) / (1 + permutations) is exact:
    exchangeable patients are called shifted with probability at most `level`, however many values are compared.
    """
    a, b = (np.asarray(values, np.float64) for values in (values_a, values_b))
    codes_a, patients_a = cluster_codes(np.arange(len(a)) if patient_a is None else patient_a)
    codes_b, patients_b = cluster_codes(np.arange(len(b)) if patient_b is None else patient_b)
    codes = np.concatenate([codes_a, codes_b + patients_a])
    both = np.concatenate([a.reshape(len(a), -1), b.reshape(len(b), -1)]).T
    ranked = [_ranked(values, codes) for values in both]
    in_a = np.arange(patients_a + patients_b) < patients_a
    rng = np.random.default_rng([seed, 0x5117])
    observed, reached = float(_largest(in_a[None], ranked)[0]), 0
    size = max(1, 100_000 // len(codes))  # permutations that are compared at once
    for start in range(0, permutations, size):
        drawn = np.stack([rng.permutation(in_a) for _ in range(min(size, permutations - start))])
        reached += int((_largest(drawn, ranked) >= observed - 1e-12).sum())
    return Resemblance(observed, (1 + reached) / (1 + permutations), level, permutations)


def _ranked(values: Floats, codes: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(N,) patients in the order of their values, and the last place of each distinct value."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    return codes[order], np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))


def _largest(in_a: Bools, ranked: list[tuple[NDArray[np.intp], NDArray[np.intp]]]) -> Floats:
    """(B,) largest distance of the values of B divisions (B, P) of the patients."""
    found = np.zeros(len(in_a))
    for ordered, ends in ranked:
        count_a = np.cumsum(in_a[:, ordered], axis=1)[:, ends]
        count_b = ends + 1 - count_a
        np.maximum(found, np.abs(count_a / count_a[:, -1:] - count_b / count_b[:, -1:]).max(axis=1), out=found)
    return found


SCHEMA = "retinabench.transfer/3"
LEAST_PERMUTATIONS = 199
ROUNDING = 1e-12  # a goal that is met exactly is met, whatever the last digit of a quotient


@dataclass(frozen=True)
class Choice:
    """A threshold (refer where uncertainty > threshold) and what it does on the validation images, by plain estimates."""

    goals: tuple[Goal, ...]
    threshold: float | None
    values: tuple[float | None, ...]
    referral_rate: float | None
    why: str | None = None

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries; target, goal and value are those of the first goal."""
        first = self.goals[0]
        goals = [{**goal.to_dict(), "value": value} for goal, value in zip(self.goals, self.values, strict=True)]
        return {
            "target": first.target, "goal": first.value, "threshold": self.threshold, "value": self.values[0],
            "referral_rate": self.referral_rate, "why": self.why, "goals": goals,
        }  # fmt: skip


def choose_threshold(cases: ReferralCases, goals: Sequence[Goal]) -> Choice:
    """Choose the threshold that reaches the goals on these images, by plain estimates, which as the best of many are optimistic.

    Candidates are minus infinity (refer all) and every distinct uncertainty. Of those that meet every goal, the threshold that refers
    the fewest images is chosen; where the only goal is a `referral_rate`, the one that refers the most.
    """
    thresholds, met, risks = meeting(cases, goals)
    if not met.any():
        return Choice(tuple(goals), None, (None,) * len(goals), None, _why(risks, goals))
    places = np.flatnonzero(met)
    k = int(places[0] if all(goal.spec.of_referred for goal in goals) else places[-1])
    values = tuple(float(1 - r[k] if goal.spec.at_least else r[k]) for r, goal in zip(risks, goals, strict=True))
    rate = float(cases.weight[cases.uncertainty > thresholds[k]].sum() / cases.weight.sum())
    return Choice(tuple(goals), float(thresholds[k]), values, rate)


def meeting(cases: ReferralCases, goals: Sequence[Goal]) -> tuple[Floats, Bools, list[Floats]]:
    """Return the candidates for a threshold, and which of them meet the goals on these images, by plain estimates. Shapes: returns (K,)."""
    order = np.argsort(cases.uncertainty, kind="stable")
    ranked = cases.uncertainty[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    thresholds = np.append(-np.inf, ranked[ends])

    def retained(mass: Floats) -> Floats:
        return np.append(0.0, np.cumsum(mass[order])[ends])

    def risk(goal: Goal) -> Floats:
        spec = goal.spec
        among = spec.among(cases) * cases.weight
        num = retained(spec.counted(cases) * cases.weight)
        if spec.of_referred:
            num = num[-1] - num
        den = retained(among) if spec.den_retained else np.full(len(num), among.sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(den > 0, num / den, np.nan))

    risks = [risk(goal) for goal in goals]
    with np.errstate(invalid="ignore"):
        met = np.all([r <= goal.max_risk + ROUNDING for r, goal in zip(risks, goals, strict=True)], axis=0)
    return thresholds, np.asarray(met), risks


def _why(risks: Sequence[Floats], goals: Sequence[Goal]) -> str:
    """Why no threshold reaches the goals."""
    for goal, risk in zip(goals, risks, strict=True):
        if not np.isfinite(risk).any():
            return f"no image counts for the {goal.spec.heading}"
        best = float(np.nanmin(risk))
        if best > goal.max_risk + ROUNDING:
            best = 1 - best if goal.spec.at_least else best
            return f"no threshold reaches the goal ({goal.text}); the best value is {best:.3f}"
    return "no threshold reaches all goals at once"


@dataclass(frozen=True)
class FailingGroup(Document):
    """A group of images, such as `site: B`, that misses a goal; `value` is that of the goal's target, with its simultaneous interval."""

    name: str
    goal: str
    value: Interval


@dataclass(frozen=True)
class Realised:
    """What a frozen threshold does to a set; shares are of the estimand that was asked for.

    Args:
        images: Number of images.
        referred: Number of images referred.
        called: Numbers of images that the model calls negative and positive on its own.
        targets: Name of a target -> its value with its exact-type interval, clustered by patient; see `goals`.
        missed: Number of referable images that are retained and called negative, and of referable images.
        missed_severe: The same of images of grade 3 and 4; None without grades.
        readings: Reading of "referred" -> rate -> value with its interval, per image; see `referral_view_intervals`.
        resemblance: Screen for covariate shift against validation; None on validation itself.
        verdicts: What the labels of the set say about each goal that bounds a share within (0, 1); empty on validation.
        certified: Whether these goals are certified.
        failing: Groups of the further columns that miss a goal.

    Examples:
        >>> import retinabench as rb
        >>> p = rb.Predictions(list("abcd"), [0, 1] * 2, [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2)
        >>> rb.transfer(p, "accuracy", 1.0, bootstrap=20)["in_domain"].selective_risk.value
        0.0
    """

    images: int
    referred: int
    called: tuple[int, int]
    targets: Mapping[str, Interval]
    missed: tuple[int, int]
    missed_severe: tuple[int, int] | None
    readings: Mapping[str, Mapping[str, Interval]]
    resemblance: Resemblance | None = None
    verdicts: tuple[Refutation, ...] = ()
    certified: bool = False
    failing: tuple[FailingGroup, ...] = ()

    @property
    def referral_rate(self) -> Interval:
        return self.targets["referral_rate"]

    @property
    def selective_risk(self) -> Interval:
        """Share of wrong calls among the retained."""
        return self.targets["selective_risk"]

    @property
    def judged(self) -> Verdict | None:
        """`broken` where the labels refute a goal, `holds` where they confirm all, else `not refuted`; None without verdicts."""
        verdicts = {one.verdict for one in self.verdicts}
        if not verdicts:
            return None
        return "broken" if "broken" in verdicts else "holds" if verdicts == {"holds"} else "not refuted"

    @property
    def guarantee(self) -> str | None:
        """What the labels say of the certificate, as `judged`; `none` without a certificate, None on validation."""
        if self.resemblance is None:
            return None
        return (self.judged if self.certified else None) or "none"

    def to_dict(self) -> JsonObject:
        """Return the set's part of the JSON of `retinabench transfer`."""
        called = {"negative": self.called[0], "positive": self.called[1]}
        content = {"images": self.images, "read_by_expert": self.referred, "called": called}
        content |= {name: getattr(self, name) for name in ("referral_rate", "selective_risk", "targets")}
        content["missed_referable"] = {"images": self.missed[0], "of": self.missed[1]}
        content |= {"readings": self.readings, "failing": self.failing}
        if self.missed_severe is not None:
            content["missed_severe"] = {"images": self.missed_severe[0], "of": self.missed_severe[1]}
        if self.resemblance is not None:
            content |= {"resemblance": self.resemblance, "guarantee": self.guarantee, "verdicts": self.verdicts}
        return {name: json_content(one) for name, one in content.items()}


def realised(cases: ReferralCases, threshold: float, *, reader: tuple[float, float] = (0.9, 0.95)) -> Realised:
    """Return what a frozen threshold does to a set, with 95 % intervals clustered by patient."""
    referred = cases.uncertainty > threshold
    readings = referral_view_intervals(cases.label, cases.positive, referred, cases.patient, reader=reader)
    graded = cases.severe is not None
    known = [name for name in TARGETS if graded or name not in ("severe_sensitivity", "missed_severe")]
    targets = {name: TARGETS[name].estimate(cases, threshold) for name in known}
    negative, positive = ~referred & ~cases.positive, ~referred & cases.positive
    sizes = len(cases), int(referred.sum()), (int(negative.sum()), int(positive.sum()))

    def missed(ill: Bools) -> tuple[int, int]:
        return int((ill & negative).sum()), int(ill.sum())

    severe = None if cases.severe is None else missed(cases.severe)
    return Realised(*sizes, targets, missed(cases.label), severe, readings)


def failing_groups(
    cases: ReferralCases, part: Predictions, threshold: float, goals: Sequence[Goal]
) -> tuple[FailingGroup, ...]:
    """Return the groups of the further columns that miss a goal, by intervals that hold for all groups and goals at once."""
    groups = named_groups(part)
    level = 1 - 0.05 / max(1, len(groups) * len(goals))
    failing = []
    for name, rows in groups.items():
        own = cases.take(rows)
        for goal in goals:
            of = goal.spec.sums(own, threshold)[1] > 0
            if len(np.unique(own.patient[of])) < FEWEST_PATIENTS:
                continue
            value = goal.spec.estimate(own, threshold, level)
            if value.high < goal.value if goal.spec.at_least else value.low > goal.value:
                failing.append(FailingGroup(name, str(goal), value))
    return tuple(failing)


@contextmanager
def of_file(source: str | None) -> Iterator[None]:
    """Let errors about a column, which the images of a file are judged without, name the file."""
    try:
        yield
    except InputError as error:
        if error.column is None or error.file is not None:
            raise
        raise error.again(file=source) from None


def validation_and_test(predictions: Predictions, *, certifying: bool) -> dict[str, Predictions]:
    """Return the in-domain validation images and the test images of each domain; for a certificate, all images of a set have a patient, or none has."""
    validation = predictions.select(domain="in_domain", split="validation")
    if validation is None:
        hint = "Mark the images that may choose the threshold by split = validation."
        raise InputError("holds no in-domain image of the validation split", file=predictions.source, hint=hint)
    found = {name: predictions.select(domain=name, split="test") for name in ("in_domain", "shifted")}
    tests = {name: part for name, part in found.items() if part is not None}
    if not tests:
        hint = "Mark the images that the rule is tried on by split = test."
        raise InputError("holds no image of the test split", file=predictions.source, hint=hint)
    for name, part in {"validation": validation, **tests}.items() if certifying else ():
        if part.patient_id is None and (eyes := eyes_of_one(part.image_id.tolist())) is not None:
            names = f"'{eyes[0]}' and '{eyes[1]}'"
            problem = f"is missing, and {names} look like the eyes of one patient, which fail together"
            hint = "Add the patient of every image, or rename the images if each is of another patient."
            raise InputError(problem, file=predictions.source, column="patient_id", hint=hint)
        if part.patient_id is not None:
            refuse_partly(part.patient_id, part.image_id, f"images of the set {name}", predictions.source)
    for name, test in tests.items():
        if test.patient_id is None or validation.patient_id is None:
            continue
        refuse_alike((validation.patient_id, test.patient_id), "patient_id", predictions.source)
        both = np.intersect1d(validation.patient_id, test.patient_id)
        if len(both):
            split, hint = "test split", "Split by patient."
            if name == "shifted":
                split = "shifted test split"
                hint += " Where the other site numbers other patients alike, write the site before their ids."
            problem = f"{len(both)} patients are in the validation and in the {split}, such as '{both[0][:60]}'"
            raise InputError(problem, file=validation.source, column="patient_id", hint=hint)
    return {"validation": validation, **tests}


class FrozenOnSets(Tabular, Document):
    """The result of a rule that was chosen on validation, frozen, and applied to the sets of a file."""

    sets: Mapping[str, Realised]

    @property
    @abstractmethod
    def goals(self) -> tuple[Goal, ...]:
        """What the rule was to reach."""

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw what each goal's target is on every set, with its interval, and the goal as an upright line."""
        rows = [
            IntervalRow(f"{goal.spec.heading}, {name.replace('_', '-')}", one.value, one.low, one.high, goal.value)
            for goal in self.goals
            for name, found in self.sets.items()
            if (one := found.targets.get(goal.target))
        ]
        return draw_intervals(rows, axes)

    def __getitem__(self, name: str) -> Realised:
        return self.sets[name]

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries; an infinite threshold, such as one that refers no image, is written as the text "inf"."""
        content: JsonObject = infinity_as_text(super().to_dict())
        threshold = getattr(self, "threshold", None)
        return content if threshold is None else content | {"threshold": infinity_as_text(threshold)}

    @property
    def broken(self) -> tuple[str, ...]:
        """The sets whose labels refute the certificate."""
        return tuple(name for name, one in self.sets.items() if one.guarantee == "broken")

    @property
    def unmet(self) -> tuple[str, ...]:
        """The sets whose labels refute a goal that was not certified."""
        return tuple(name for name, one in self.sets.items() if one.judged == "broken" and not one.certified)


def on_sets(
    cases: Mapping[str, ReferralCases],
    parts: Mapping[str, Predictions],
    threshold: float,
    goals: Sequence[Goal],
    features: Mapping[str, Floats],
    reader: tuple[float, float],
    permutations: int,
    seed: int,
    *,
    certified: bool,
) -> dict[str, Realised]:
    """Return what a frozen threshold does to every set; test sets are screened for shift, and their labels judge the goals; `features` (N, D)."""
    tested = [goal for goal in goals if 0 < goal.max_risk < 1]
    found = {}
    for name, one in cases.items():
        failing = failing_groups(one, parts[name], threshold, tested)
        found[name] = replace(realised(one, threshold, reader=reader), failing=failing)
    tests = {name: one for name, one in cases.items() if name != "validation"}
    asked = [(goal, one) for one in tests.values() for goal in tested]
    risks = [LabelledRisk(*goal.spec.sums(one, threshold), one.patient, goal.max_risk) for goal, one in asked]
    verdicts = iter(judge(risks))
    for name in tests:
        screen = resemblance(
            features["validation"], cases["validation"].patient, features[name], cases[name].patient,
            permutations=max(permutations, LEAST_PERMUTATIONS), seed=seed,
        )  # fmt: skip
        of_set = tuple(next(verdicts) for _ in tested)
        found[name] = replace(found[name], resemblance=screen, verdicts=of_set, certified=certified)
    return found


def notes_on(
    parts: Mapping[str, Predictions], cases: Mapping[str, ReferralCases], sets: Mapping[str, Realised],
    certificates: Sequence[Certificate], missed: str, decision: float = 0.5,
) -> list[str]:  # fmt: skip
    """Return what a reader of the numbers must know of the patients, the labels, the certificates, and missed disease."""
    validation = parts["validation"]
    notes = [*validation.notes]
    for name, one in cases.items():
        prob, where = parts[name].prob, name.replace("_", "-").capitalize()
        ranked = auroc_error(one.label, prob, one.patient)
        notes += order_notes(where, Interval(ranked.auroc, *ranked.interval()))
        notes += input_notes(where, one.label, prob, one.uncertainty, one.patient, decision)
    if validation.patient_id is None:
        notes.append(without_patients(validation.image_id.tolist()))
    most = max((one.most_images for one in certificates if one.granted), default=1)
    if sets and most > 1:
        notes.append(f"the certificate covers patients with at most {most} images")
    for name, of_set in sets.items():
        images, positives = of_set.missed
        if 2 * images > positives:
            notes.append(
                f"{name.replace('_', '-')}: {images:,} of {positives:,} referable images are {missed}; "
                "ask for --goal sensitivity=0.9"
            )
    return notes


def infinity_as_text(content: Any) -> Any:
    """Return the content of a JSON file with infinite numbers as text, since JSON has none."""
    if isinstance(content, dict):
        return {key: infinity_as_text(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [infinity_as_text(value) for value in content]
    return str(content) if isinstance(content, float) and not np.isfinite(content) else content


@dataclass(frozen=True)
class Transfer(FrozenOnSets):
    """A threshold from validation, what it does to the test sets, and whether its guarantee holds there.

    Args:
        per: The estimand of everything that is chosen, certified and reported, one of `goals.PER`.
        uncertainty: What orders the referral.
        decision: From which probability on the model calls an image referable.
        choice: The threshold chosen by its plain estimate.
        certificate: The certified threshold in guaranteed mode, else None.
        alone: Sensitivity of the model on the validation images, without referral.
        sets: `validation`, `in_domain` and `shifted`, as far as they exist -> what the threshold does there.
        reference: Probability and uncertainty of validation patients, by which drift is seen later.
        notes: What a reader of the numbers must know.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(
        ...     ["a", "b", "c", "d"], [0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2
        ... )
        >>> found = rb.transfer(predictions, "accuracy", 1.0, bootstrap=20)
        >>> found["in_domain"].referred
        1
    """

    _schema, _also = SCHEMA, ("threshold",)
    _keys: ClassVar = {"decision": "decision_threshold", "alone": "model_sensitivity"}

    per: Per
    uncertainty: str
    decision: FrozenThreshold
    choice: Choice
    certificate: Certificate | None
    alone: Interval
    sets: Mapping[str, Realised]
    reference: Mapping[str, Sequence[float]]
    notes: tuple[str, ...]

    @property
    def goals(self) -> tuple[Goal, ...]:
        return self.choice.goals

    @property
    def threshold(self) -> float | None:
        """The frozen threshold: the certified one in guaranteed mode, else the chosen one."""
        return self.choice.threshold if self.certificate is None else self.certificate.threshold

    @property
    def refused(self) -> bool:
        """Whether a certificate was asked for and cannot be given."""
        return self.certificate is not None and not self.certificate.granted

    def records(self) -> list[Row]:
        rows: list[Row] = []
        for name, one in self.sets.items():
            row: Row = {"set": name, "per": self.per, "images": one.images, "read_by_expert": one.referred}
            row |= {"share_read": one.referral_rate.value, "selective_risk": one.selective_risk.value}
            row |= {"low": one.selective_risk.low, "high": one.selective_risk.high}
            rows.append(row | {"sensitivity": one.targets["sensitivity"].value, "guarantee": one.guarantee})
        return rows


def transfer(
    predictions: Predictions,
    target: str = "selective_risk",
    goal: float = 0.05,
    *,
    goals: Sequence[Goal | str] = (),
    delta: float | None = None,
    per: Per = "image",
    most_images: int | None = None,
    uncertainty: str = "auto",
    threshold: DecisionThreshold | float | str = 0.5,
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
) -> Transfer:
    """Choose a referral threshold on the in-domain validation split, freeze it, and report on the test sets.

    Args:
        predictions: Predictions with a validation and a test split.
        target: What the threshold must reach, one of `goals.TARGETS`.
        goal: The value to reach.
        goals: Several of them instead, such as ``["sensitivity=.9", "npv=.99", "workload=.5"]``.
        delta: None for the plain choice; else certify all goals with confidence 1 - delta.
        per: The estimand: ``image`` (all images count alike), ``patient-image`` (all patients do: an image of a random one), or
            ``patient`` (any eye).
        most_images: The largest number of images that a new patient may have; None: that of the validation patients.
        uncertainty: What orders the referral, as in `score`.
        threshold: From which probability on the model calls an image referable; see `DecisionThreshold`.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Permutations of the screen for covariate shift, at least 199.
        seed: Seed of these permutations.

    Returns:
        The threshold and what it does on every set.

    Raises:
        InputError: Validation or test images are missing, a patient is in both, or validation images chose the decision threshold.

    Examples:
        >>> import retinabench as rb
        >>> p = rb.Predictions(list("abcd"), [0, 1] * 2, [0.1, 0.4, 0.6, 0.9], split=["validation"] * 2 + ["test"] * 2)
        >>> round(rb.transfer(p, "accuracy", 1.0, bootstrap=20).threshold, 4)
        0.3251
    """
    check_draws(bootstrap, seed)
    wanted, parts = as_goals(target, goal, goals), validation_and_test(predictions, certifying=delta is not None)
    decision = DecisionThreshold.parse(threshold).freeze(predictions)
    if delta is not None and decision.chosen_on == "validation":
        problem = f"the threshold {decision.rule} is chosen on the validation images, which cannot certify it as well"
        raise InputError(problem, hint=f"Fix a number beforehand, such as {decision.value:.3g} from earlier patients.")
    name = referral_uncertainty(parts["validation"], uncertainty, threshold=decision.value)[1]
    reference = reference_values(Watched.of(parts["validation"], name, None, decision=decision.value))
    if per == "patient":
        parts = {of: by_patient(part, uncertainty, decision.value) for of, part in parts.items()}
        uncertainty, most_images = "own", None
    cases = {of: ReferralCases.of(part, uncertainty, decision.value, per) for of, part in parts.items()}
    sets: dict[str, Realised] = {}
    with of_file(predictions.source):
        choice = choose_threshold(first := cases["validation"], wanted)
        certificate = None if delta is None else certify(first, wanted, delta, most_images=most_images)
        frozen = choice.threshold if certificate is None else certificate.threshold
        if frozen is not None:
            seen = {name: np.column_stack([parts[name].prob, one.uncertainty]) for name, one in cases.items()}
            sets = on_sets(cases, parts, frozen, wanted, seen, reader, bootstrap, seed, certified=delta is not None)
    notes = notes_on(parts, cases, sets, [certificate] if certificate else [], "missed", decision.value)
    notes += [decision.note] if decision.note else []
    alone = TARGETS["sensitivity"].estimate(first, np.inf)
    return Transfer(per, name, decision, choice, certificate, alone, sets, reference, tuple(notes))
