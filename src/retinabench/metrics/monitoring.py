"""`monitor`: whether a certificate still holds on new patients.

Three things are watched, visit after visit (`follow_up`):

* **The certified risks**, with labels. A visit of a patient with the sums num and den of a risk with the goal a enters an e-process
  (`follow_up`) by x = (num - a den) / (a m), where m bounds den: 1 per image of a random patient, the largest number of images of a
  validation patient per image (a patient with more counts as so many). While E[num] <= a E[den] holds at all times, the alarm is ever raised with probability at most
  `level`. Several risks are watched together by the mean of their wealths; one that reaches (number of risks) / level by itself is
  named. A visit without labels changes nothing; which patients have labels must not depend on whether the model is wrong. Where the labelled images
  are the uncertain ones (`selection`), the labels say nothing of the certificate: no alarm counts, and no lack of one.
* **Drift**, without labels: conformal p-values of the probability and the uncertainty of an image of each visit among those of the validation
  patients, which the certificate holds, and all earlier visits of the same number. While patients are exchangeable it is raised with probability at most `level`.
  It sees changes of these distributions and no others: errors of which the model is sure leave no trace in them.
* **Per window of time**: the share referred, calibration in the large (observed minus predicted share of referable images) and the
  risks, with 95 % intervals that are clustered by patient and valid for one window each, not for a search among them.

A certificate of `transfer`, watched on later predictions::

    result = rb.monitor(rb.read_predictions("follow-up.csv", unlabelled=True), "transfer.json")
    result.alarm, result.to_dict(), result.plot()
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import (
    GREY,
    VERMILION,
    Document,
    JsonObject,
    Row,
    Tabular,
    axes_or_new,
    json_content,
    vars_of,
)
from retinabench.metrics.actions import HINT, FrozenRule, read_rule
from retinabench.metrics.calibration import input_notes
from retinabench.metrics.follow_up import (
    Visits,
    Watched,
    conformal_p_values,
    drift_log_wealth,
    first_alarm,
    follow_up,
    log_wealth,
    mean_log_wealth,
    one_image_each,
    onset,
    windows,
)
from retinabench.metrics.guarantees.goals import Goal, ReferralCases, ratio_interval, weights
from retinabench.metrics.guarantees.triage import TARGETS_OF, Side, zone_cases
from retinabench.metrics.image_sets import significant
from retinabench.metrics.intervals import Interval, clustered_mean, clustered_proportion
from retinabench.metrics.patients import patient_uncertainty, worst_images
from retinabench.metrics.weighted_images import Bools, Floats, is_positive
from retinabench.predictions.check import is_own, refuse_alike, refuse_partly
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import SEVERE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Days = NDArray[np.datetime64]
RESULT_SCHEMA = "retinabench.monitor/2"
SENSITIVITY = Goal("sensitivity", 0.5)  # its value is shown whatever the goals are; none is set here
DRIFT = ("prob", "uncertainty")  # what is watched for drift
LEVEL = 0.05
# In standard errors, and as a distance from 1/2: how far the chance that a labelled image has the larger value may lie from that of no choice.
SELECTED, UNLIKE = 5.0, 0.05


def by_visit(images: Watched, rule: FrozenRule, visits: Visits) -> Watched:
    """Return one row per visit, by any eye (`by_patient`); its label is known where all are: one healthy eye says nothing of the other."""
    codes, called = visits.of_image, is_positive(images.prob, rule.decision.value)
    rows = worst_images(codes, images.prob)
    ill, known = visits.sums(images.label & images.labelled) > 0, visits.sums(~images.labelled) == 0
    grade = np.full(len(rows), -1, np.int8)
    np.maximum.at(grade, codes, images.grade)
    values = patient_uncertainty(codes, called, images.uncertainty)
    return replace(images.take(rows), label=ill, labelled=known, uncertainty=values, grade=grade)


def goal_sums(rule: FrozenRule, goal: Goal, images: Watched) -> tuple[Bools, Bools]:
    """(N,) whether an image is in num and in den of a goal; in neither where its label is needed and unknown."""
    if rule.groups:
        num, den = np.zeros(len(images), bool), np.zeros(len(images), bool)
        for name, own in rule.groups.items():
            rows = images.group == name
            num[rows], den[rows] = goal_sums(own, goal, images.take(rows))
        return num, den
    codes, threshold = np.unique(images.patient, return_inverse=True)[1], rule.threshold
    severe = images.grade >= SEVERE if (images.grade >= 0).any() else None
    called = is_positive(images.prob, rule.decision.value)
    cases = ReferralCases(images.label, called, images.uncertainty, codes, weights(codes, rule.per), severe)
    if threshold is None:
        side: Side = "positive" if goal.target in TARGETS_OF["positive"] else "negative"
        end = rule.negative if side == "negative" else rule.positive
        cases = zone_cases(cases, images.prob, side)
        threshold = -math.inf if end is None else end if side == "negative" else -end
    num, den = goal.spec.sums(cases, threshold)
    known = images.labelled | goal.spec.of_referred
    return (num > 0) & known, (den > 0) & known


def read_by_expert(rule: FrozenRule, images: Watched) -> Bools:
    if rule.groups:
        read = np.ones(len(images), bool)
        for name, own in rule.groups.items():
            rows = images.group == name
            read[rows] = read_by_expert(own, images.take(rows))
        return read
    if rule.threshold is not None:
        return np.asarray(images.uncertainty > rule.threshold)
    low, high = (math.nan if end is None else end for end in (rule.negative, rule.positive))
    return np.asarray(~((images.prob <= low) | (images.prob >= high)))


@dataclass(frozen=True, eq=False)
class Evidence:
    """The path of an e-process. Shapes: `day` (D,), `log_wealth` (D,)."""

    name: str
    day: Days
    log_wealth: Floats
    needed: float
    alarm: np.datetime64 | None
    visits: int
    began: tuple[np.datetime64, ...] = ()  # by labels: the likeliest day, the first and last likely ones

    @property
    def wealth(self) -> float:
        """The evidence against the hypothesis now; it starts at one half."""
        return float(np.exp(min(self.log_wealth[-1], 500.0)))

    def to_dict(self) -> JsonObject:
        content = {name: getattr(self, name) for name in ("name", "visits", "needed")}
        content |= {"log_wealth": float(self.log_wealth[-1]), "largest_log_wealth": float(self.log_wealth.max())}
        content |= {"alarm": None if self.alarm is None else str(self.alarm), "began": [str(day) for day in self.began]}
        path = zip(self.day, self.log_wealth, strict=True)
        return {**content, "path": [[str(day), float(value)] for day, value in path]}


@dataclass(frozen=True)
class Window(Document):
    """What a window of time shows."""

    _keys: ClassVar = {"referred": "read_by_expert"}

    start: str
    images: int
    patients: int
    labelled: int
    referred: Interval
    calibration: Interval
    sensitivity: Interval  # with the expert, whatever the goals are
    risks: Mapping[str, Interval]


@dataclass(frozen=True, eq=False)
class Monitoring(Tabular):
    """What the follow-up of a certificate shows."""

    certified: FrozenRule
    level: float
    images: int
    patients: int
    labelled: int
    left_out: int  # images of validation patients, which are not tested
    risks: tuple[Evidence, ...]
    combined: Evidence
    groups: tuple[Evidence, ...]
    drift: Evidence
    reference: int
    unit: str
    windows: tuple[Window, ...]
    selection: Mapping[str, float]  # see `selection`: of what the labels depend on
    notes: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        return any(one.alarm is not None for one in (self.combined, self.drift, *self.groups))

    @property
    def failing(self) -> tuple[Evidence, ...]:
        return tuple(sorted((one for one in self.groups if one.alarm is not None), key=lambda one: str(one.alarm)))

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.risks if one.alarm is not None)

    @property
    def latest(self) -> Mapping[str, tuple[Window, Interval]]:
        every = ((one, *risk) for one in self.windows for risk in one.risks.items() if not self.selection)
        return {name: (one, value) for one, name, value in every if math.isfinite(value.value)}

    @property
    def missed(self) -> tuple[str, ...]:
        goals = {str(goal): goal for goal in self.certified.goals}
        return tuple(
            name for name, (_, one) in self.latest.items()
            if (one.high < goals[name].value if goals[name].spec.at_least else one.low > goals[name].value)
        )  # fmt: skip

    @property
    def last_label(self) -> str:
        return max((one.start for one in self.windows if one.labelled), default="")

    def records(self) -> list[Row]:
        rows: list[Row] = []
        for window in self.windows:
            row: Row = {name: getattr(window, name) for name in ("start", "images", "patients", "labelled")}
            row |= {"read_by_expert": window.referred.value, "calibration": window.calibration.value}
            rows.append(row | {name: risk.value for name, risk in window.risks.items()})
        return rows

    def plot(self, axes: Axes | None = None) -> Axes:
        axes = axes_or_new(axes)
        for one, name in ((self.combined, "certified risks"), (self.drift, "drift")):
            axes.plot(one.day, np.exp(np.clip(one.log_wealth, -20, 20)), label=name)
        axes.axhline(self.combined.needed, color=VERMILION, linestyle="--", linewidth=1, label="alarm")
        axes.axhline(1, color=GREY, linewidth=0.6)
        axes.set(yscale="log", ylabel="evidence (wealth)")
        axes.tick_params(axis="x", rotation=30)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return axes

    def to_dict(self) -> JsonObject:
        content: JsonObject = json_content(vars_of(self))
        content["drift"]["reference_patients"] = content.pop("reference")
        return {"schema": RESULT_SCHEMA, "alarm": self.alarm, **content}


def monitor(
    predictions: Predictions | Sequence[Predictions],
    certificate: FrozenRule | str | Path,
    *,
    date_column: str = "date",
    within: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Watch whether a certificate still holds on new patients: drift without labels, risk where there are labels.

    Args:
        predictions: New predictions with a date per image; read them with `unlabelled=True` where labels are missing. Images of the
            validation split serve as the reference for drift instead of the values that are stored in the certificate.
        certificate: What `retinabench transfer --json` wrote, of a threshold or of zones.
        date_column: The column with the date of each image, as 2026-03-31 or 31.03.2026.
        within: A column whose groups are watched, too; that of the certificate where it has one.
        level: Probability of a false alarm over all time, of each of the two alarms.
        seed: Seed of the randomised p-values of drift.

    Returns:
        The evidence day by day, and the values per window of time; `alarm` says whether an alarm was raised.

    Raises:
        InputError: No image is new, a date is missing, or the certificate is not valid.

    Examples:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import retinabench as rb
        >>> side = {"threshold": 0.2, "certificate": {"most_images": 1, "goals": [{"goal": {"target": "npv", "goal": 0.9}}]}}
        >>> file = Path(tempfile.mkdtemp()) / "zones.json"
        >>> _ = file.write_text(json.dumps({"schema": "retinabench.triage/1", "per": "image", "zones": {"negative": side}}))
        >>> days = {"date": ["2027-01-01", "2027-01-02"]}
        >>> rb.monitor(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.9], subgroups=days), file).alarm
        False
    """
    files = [predictions] if isinstance(predictions, Predictions) else list(predictions)
    certified = certificate if isinstance(certificate, FrozenRule) else read_rule(Path(certificate))
    images, reference = follow_up(
        files, certified.uncertainty, certified.decision.value, date_column, within or certified.column or None
    )
    return watch(images, certified, reference=reference, level=level, seed=seed)


def watch(
    images: Watched, certified: FrozenRule, *, reference: Watched | None = None, level: float = LEVEL, seed: int = 0
) -> Monitoring:
    if not 0 < level < 1:
        raise InputError(f"the level is {level}", hint="A rate of false alarms lies between 0 and 1, such as 0.05.")
    if not certified.goals:
        raise InputError("the certificate holds no certified threshold", hint=HINT)
    notes, left_out = _notes_on_patients(images, certified), 0
    if reference is not None:
        refuse_partly(reference.patient, reference.image_id, "validation images")
        refuse_alike((reference.patient, images.patient), "patient_id")
        known = np.isin(images.patient, reference.patient)
        if known.all():
            raise InputError("every patient is in the validation split", hint="Give patients who came later.")
        if known.any():
            left_out = int(known.sum())
            images = images.take(~known)
    if not images.labelled.any():
        notes.append(
            "no labels: the certified risks cannot be watched, only drift. No threshold can be chosen from images without labels: "
            "label a sample of them (`retinabench plan` says how many)"
        )
    visits = Visits.of(images)
    known = images.labelled
    codes = np.unique(images.patient[known], return_inverse=True)[1]
    seen = images.label[known], images.prob[known], images.uncertainty[known], codes
    notes += input_notes("follow-up", *seen, certified.decision.value) if known.any() else []
    chosen = selection(images, certified, visits)
    rows, of = images, visits
    if certified.per == "patient":
        rows, of = by_visit(images, certified, visits), replace(visits, of_image=np.arange(len(visits.day)))
    judged = [(goal, *goal_sums(certified, goal, rows)) for goal in certified.goals]
    bets = [_increments(certified, *one, rows, of) for one in judged]
    informative = [of.sums(den) > 0 for _, _, den in judged]
    counts = [goal.spec.of_referred or not chosen for goal in certified.goals]  # other bets would be on who has a label
    bets = [x if one else np.zeros_like(x) for x, one in zip(bets, counts, strict=True)]
    informative = [some & one for some, one in zip(informative, counts, strict=True)]
    names = [str(name) for name in np.unique(images.group) if name]
    needed = (2 if names else 1) / level  # half of the level is for the groups
    groups = []
    for name in names:
        here = rows.group == name
        for (goal, num, den), one in zip(judged, counts, strict=True):
            x = _increments(certified, goal, num & here & one, den & here & one, rows, of)
            some = of.sums(den & here & one) > 0
            groups.append(
                _evidence(f"{name}: {goal}", visits, _path(visits, x), len(names) * len(bets) * needed, some, x)
            )
    risks = tuple(
        _evidence(str(goal), visits, _path(visits, x), len(bets) * needed, some, x)
        for (goal, _, _), x, some in zip(judged, bets, informative, strict=True)
    )
    together = visits.evidence(lambda rows: mean_log_wealth(np.stack([log_wealth(x[rows]) for x in bets])))
    worst = bets[int(np.argmax([one.log_wealth.max() for one in risks]))]
    combined = _evidence("certified risks", visits, together, needed, np.any(informative, axis=0), worst)
    before = certified.reference
    if reference is not None:
        codes = np.unique(reference.patient, return_inverse=True)[1]
        before = {name: getattr(reference, name)[one_image_each(reference.image_id, codes)] for name in DRIFT}
    path, all_visits = drift_evidence(images, visits, before, seed), np.ones(len(visits.day), bool)
    drift = _evidence("drift", visits, path, 1 / level, all_visits)
    windows = _windows(images, rows, certified, judged)
    return Monitoring(
        certified, level, len(images), len(np.unique(images.patient)), int(images.labelled.sum()), left_out, risks,
        combined, tuple(groups), drift, len(before.get("prob", ())), *windows, chosen, tuple(notes),
    )  # fmt: skip


def selection(images: Watched, certified: FrozenRule, visits: Visits) -> dict[str, float]:
    """Return of `DRIFT` what the labelled images have otherwise than those without a label: name -> chance that a labelled image has the larger value.

    Of images that the expert does not read, if no goal is of others, one of each visit is compared with those of the same window and group (van
    Elteren's stratified rank test), since labels of the latest images are still to come.

    References:
        van Elteren, On the combination of independent two-sample tests of Wilcoxon, Bull. Int. Stat. Inst. 37:351 (1960).
    """
    goals = [goal.spec for goal in certified.goals if not goal.spec.of_referred]
    rows = np.flatnonzero(~read_by_expert(certified, images) | (not all(spec.den_retained for spec in goals)))
    rows = rows[one_image_each(images.image_id[rows], visits.of_image[rows])]
    strata = np.unique(np.char.add(np.char.mod("%d ", windows(images.day)[1]), images.group), return_inverse=True)[1]
    found = {}
    for name in DRIFT if goals else ():
        excess = variance = above = pairs = 0.0
        for one in np.unique(strata[rows]):
            of = rows[strata[rows] == one]
            value, known = getattr(images, name)[of], images.labelled[of]
            with_label, n, others = int(known.sum()), len(of), np.sort(value[~known])
            wins = sum(float(np.searchsorted(others, value[known], side).sum()) for side in ("left", "right")) / 2
            above, pairs = above + wins, pairs + with_label * (n - with_label)
            excess += (wins - with_label * (n - with_label) / 2) / (n + 1)
            variance += with_label * (n - with_label) / 12 / (n + 1)
        if pairs and abs(excess) > SELECTED * math.sqrt(variance) and abs(above / pairs - 0.5) > UNLIKE:
            found[name] = above / pairs
    return found


def _notes_on_patients(images: Watched, certified: FrozenRule) -> list[str]:
    """Refuse or note images without a patient: bets on images that fail together raise false alarms too often."""
    refuse_partly(images.patient, images.image_id, "images")
    alone = (images.patient == images.image_id) | is_own(images.patient, images.image_id)
    most, notes = math.inf if certified.per == "patient" else certified.most_images, []
    if most > 1 and alone.all():
        with_images = f" with up to {most} images" if most < math.inf else ""
        hint = "Add the patient of every image: images of one patient fail together."
        problem = f"is missing, and the certificate is of patients{with_images}"
        raise InputError(problem, column="patient_id", hint=hint)
    if most > 1 and alone.any():
        notes.append(
            f"{np.count_nonzero(alone):,} of {len(alone):,} images have a patient of their own name: if others are of the "
            "same patients, alarms may be too many"
        )
    many = np.count_nonzero(np.bincount(Visits.of(images).of_image) > most)
    if many:
        notes.append(
            f"{many:,} visits have more images than the {most} of a patient that the certificate covers: they count as {most}"
        )
    return notes


def _evidence(
    name: str, visits: Visits, path: Floats, needed: float, informative: Bools, x: Floats | None = None
) -> Evidence:
    """Reduce a path over T visits to days; an alarm between two visits of a day counts. `x` (T,) are the increments of the bets."""
    last = np.append(np.flatnonzero(np.diff(visits.day).astype(np.int64) > 0), len(path) - 1)
    crossed = first_alarm(path, 1 / needed)
    alarm = None if crossed is None else visits.day[crossed]
    began = () if crossed is None or x is None else tuple(visits.day[k] for k in onset(x[: crossed + 1]))
    return Evidence(name, visits.day[last], path[last], needed, alarm, int(informative.sum()), began)


def _path(visits: Visits, increments: Floats) -> Floats:
    """(T,) log of the evidence of bets with these increments, (T,)."""
    return visits.evidence(lambda rows: log_wealth(increments[rows]))


def _increments(certified: FrozenRule, goal: Goal, num: Bools, den: Bools, images: Watched, visits: Visits) -> Floats:
    """(T,) increments of bets against E[num] <= a E[den], a being the goal of the risk."""
    top, bottom, most = visits.sums(num), visits.sums(den), float(certified.most_images)
    if certified.per == "patient-image":
        of_visit = np.maximum(visits.sums(images.labelled | goal.spec.of_referred), 1)
        top, bottom, most = top / of_visit, bottom / of_visit, 1.0
    bounded = np.minimum(1, most / np.maximum(bottom, 1e-300))
    a = goal.max_risk
    return np.asarray(bounded * (top - a * bottom) / (a * most))


def drift_evidence(images: Watched, visits: Visits, reference: Mapping[str, Floats], seed: int) -> Floats:
    """(T,) log of the evidence against exchangeability of the patients' probability and uncertainty, with those of the reference.

    One image stands for each visit: a mean over the images of a patient would vary less the more there are, and would tell
    validation patients with both eyes on one day from later ones with an eye a day.
    """
    rows = one_image_each(images.image_id, visits.of_image)

    def log_wealth_of(some: NDArray[np.intp]) -> Floats:
        streams = []
        for k, name in enumerate(DRIFT):
            known, new = reference.get(name, np.zeros(0)), getattr(images, name)[rows[some]]
            if name == "prob":  # the last digit of a mean may differ for equal samples: such values are ties
                known, new = significant(known), significant(new)
            streams.append(drift_log_wealth(conformal_p_values(known, new, seed + k)))
        return mean_log_wealth(np.stack(streams))

    return visits.evidence(log_wealth_of)


def _windows(
    images: Watched, counted: Watched, certified: FrozenRule, judged: Sequence[tuple[Goal, Bools, Bools]]
) -> tuple[str, tuple[Window, ...]]:
    (start, number, unit), of = windows(images.day), windows(counted.day)[1]
    sensitivity = SENSITIVITY, *goal_sums(certified, SENSITIVITY, counted)
    referred = read_by_expert(certified, images)
    rows = []
    for k, first in enumerate(start):
        here, known = number == k, (number == k) & images.labelled
        patient = images.patient[here]
        sizes = int(here.sum()), len(np.unique(patient)), int(known.sum())
        read = clustered_proportion(referred[here], np.ones(len(patient)), patient)
        calibration = clustered_mean((images.label - images.prob)[known], images.patient[known])
        seen, *risks = (_estimate(certified, one, of == k, counted.patient) for one in (sensitivity, *judged))
        named = {str(goal): risk for (goal, _, _), risk in zip(judged, risks, strict=True)}
        rows.append(Window(str(first), *sizes, read, calibration, seen, named))
    return unit, tuple(rows)


def _estimate(
    certified: FrozenRule, judged: tuple[Goal, Bools, Bools], rows: Bools, patient: NDArray[np.str_]
) -> Interval:
    """The value of a target with its clustered interval; NaN where nothing counts."""
    goal, num, den = judged
    codes = np.unique(patient[rows], return_inverse=True)[1]
    weight = weights(codes, certified.per)
    risk = ratio_interval(num[rows] * weight, den[rows] * weight, codes)
    return Interval(1 - risk.value, 1 - risk.high, 1 - risk.low) if goal.spec.at_least else risk
