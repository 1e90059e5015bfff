"""`monitor`: whether a certificate still holds on new patients.

Three things are watched, visit after visit (`follow_up`):

* **The certified risks**, with labels. A visit of a patient with the sums num and den of a risk with the goal a enters an e-process
  (`follow_up`) by x = (num - a den) / (a m), where m bounds den: 1 per image of a random patient, the largest number of images of a
  validation patient per image (a patient with more counts as so many). While E[num] <= a E[den] holds at all times, the alarm is ever raised with probability at most
  `level`. Several risks are watched together by the mean of their wealths; one that reaches (number of risks) / level by itself is
  named. A visit without labels changes nothing; which patients have labels must not depend on whether the model is wrong.
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

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.files import check
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
    windows,
)
from retinabench.metrics.guarantees.goals import (
    PER,
    SEVERE,
    Goal,
    Per,
    ReferralCases,
    ratio_interval,
    weights,
)
from retinabench.metrics.guarantees.triage import TARGETS_OF, Side, zone_cases
from retinabench.metrics.proportions import Interval, clustered_mean, clustered_proportion
from retinabench.metrics.uncertainty import significant
from retinabench.predictions.check import is_own, refuse_alike, refuse_partly
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
SCHEMA = "retinabench.transfer/"
TRIAGE = "retinabench.triage/"
_HINT = "Write it with: retinabench transfer FILE --confidence 0.95 --json transfer.json."


@dataclass(frozen=True)
class Certified:
    """Frozen thresholds and certified goals.

    `threshold` is that of the uncertainty; with `zones`, the ends of the negative and of the positive zone of P(referable), it is not used.
    """

    threshold: float
    decision: float
    uncertainty: str
    goals: tuple[Goal, ...]
    per: Per
    most_images: int
    reference: Mapping[str, Floats] = field(
        default_factory=dict
    )  # values of validation patients, by which drift is seen
    zones: tuple[float, float] | None = None

    def retained(self, images: Watched) -> Bools:
        """(N,) whether the model decides alone."""
        if self.zones is not None:
            return np.asarray((images.prob <= self.zones[0]) | (images.prob >= self.zones[1]))
        return np.asarray(images.uncertainty <= self.threshold)

    def cases(self, images: Watched) -> ReferralCases:
        """Return the images as a referral rule sees them, weighted as in the estimand."""
        codes = np.unique(images.patient, return_inverse=True)[1]
        above = images.prob > self.decision if self.decision == 0.5 else images.prob >= self.decision
        severe = images.grade >= SEVERE if (images.grade >= 0).any() else None
        return ReferralCases(images.label, above, images.uncertainty, codes, weights(codes, self.per), severe)

    def sums(self, goal: Goal, images: Watched) -> tuple[Bools, Bools]:
        """(N,) whether an image is in num and in den of a goal; in neither where its label is needed and unknown."""
        cases, threshold = self.cases(images), self.threshold
        if self.zones is not None:
            side: Side = "positive" if goal.target in TARGETS_OF["positive"] else "negative"
            cases, threshold = (
                zone_cases(cases, images.prob, side),
                self.zones[0] if side == "negative" else -self.zones[1],
            )
        num, den = goal.spec.sums(cases, threshold)
        known = images.labelled | goal.spec.of_referred
        return (num > 0) & known, (den > 0) & known

    def to_dict(self) -> JsonObject:
        """Return the certificate for JSON."""
        return {
            "threshold": self.threshold if math.isfinite(self.threshold) else str(self.threshold),
            "zones": self.zones and [end if math.isfinite(end) else None for end in self.zones],
            "decision": self.decision,
            "uncertainty": self.uncertainty,
            "goals": [one.to_dict() for one in self.goals],
            "per": self.per,
        }


def read_certificate(path: Path) -> Certified:
    """Read what `retinabench transfer --json` wrote, of a threshold or of zones."""
    try:
        content = json.loads(check(path, named=True).read_bytes())
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except (OSError, ValueError, RecursionError):
        raise InputError("is no JSON file", file=path, hint=_HINT) from None
    schema = str(content.get("schema", "")) if isinstance(content, dict) else ""
    if not schema.startswith((SCHEMA, TRIAGE)):
        raise InputError("is not the JSON of a certificate", file=path, hint=_HINT)
    try:
        found = _zones(content) if schema.startswith(TRIAGE) else _certified(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"is not a whole certificate ({error})", file=path, hint=_HINT) from None
    if found is None:
        raise InputError("holds no certified threshold", file=path, hint=_HINT)
    return found


def _certified(content: JsonObject) -> Certified | None:
    certificate = content.get("certificate")
    if not isinstance(certificate, dict) or certificate.get("threshold") is None:
        return None
    decision, uncertainty = float(content["decision_threshold"]["value"]), content["uncertainty"]
    return _whole(content, float(certificate["threshold"]), decision, uncertainty, [certificate])


def _zones(content: JsonObject) -> Certified | None:
    zones = {side: one for side, one in content["zones"].items() if one["certificate"] and one["threshold"] is not None}
    if not zones:
        return None
    found = _whole(content, math.nan, 0.5, "total", [one["certificate"] for one in zones.values()])
    ends = {"negative": -math.inf, "positive": math.inf} | {
        side: float(one["threshold"]) for side, one in zones.items()
    }
    return replace(found, zones=(ends["negative"], ends["positive"]))


def _whole(
    content: JsonObject, threshold: float, decision: float, uncertainty: str, certificates: Sequence[JsonObject]
) -> Certified:
    goals = tuple(
        Goal(str(one["goal"]["target"]), float(one["goal"]["goal"])) for found in certificates for one in found["goals"]
    )
    if content["per"] not in PER or not goals or not isinstance(uncertainty, str):
        raise ValueError("no goal, or an unknown estimand or uncertainty")
    most = max(int(one["most_images"]) for one in certificates)
    reference = {name: np.array(values, np.float64) for name, values in content.get("reference", {}).items()}
    return Certified(threshold, decision, uncertainty, goals, content["per"], most, reference)


Days = NDArray[np.datetime64]
RESULT_SCHEMA = "retinabench.monitor/1"
SENSITIVITY = Goal("sensitivity", 0.5)  # its value is shown whatever the goals are; none is set here
DRIFT = ("prob", "uncertainty")  # what is watched for drift


@dataclass(frozen=True, eq=False)
class Evidence:
    """The path of an e-process.

    Shapes: `day` (D,), `log_wealth` (D,).
    """

    name: str
    day: Days
    log_wealth: Floats
    needed: float
    alarm: np.datetime64 | None
    visits: int

    @property
    def wealth(self) -> float:
        """The wealth now: how strong the evidence against the hypothesis is; 1 where there is none."""
        return float(np.exp(min(self.log_wealth[-1], 500.0)))

    def to_dict(self) -> JsonObject:
        """Return the path for JSON."""
        return {
            "name": self.name,
            "visits": self.visits,
            "needed": self.needed,
            "log_wealth": float(self.log_wealth[-1]),
            "largest_log_wealth": float(self.log_wealth.max()),
            "alarm": None if self.alarm is None else str(self.alarm),
            "path": [[str(day), float(value)] for day, value in zip(self.day, self.log_wealth, strict=True)],
        }


@dataclass(frozen=True)
class Window(Document):
    """What a window of time shows."""

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

    certified: Certified
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
    notes: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        """Whether an alarm was raised."""
        return any(one.alarm is not None for one in (self.combined, self.drift, *self.groups))

    @property
    def failing(self) -> tuple[Evidence, ...]:
        """The groups for which a goal is shown to be missed, the earliest first."""
        return tuple(sorted((one for one in self.groups if one.alarm is not None), key=lambda one: str(one.alarm)))

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the certified risks that reached their own limit."""
        return tuple(one.name for one in self.risks if one.alarm is not None)

    @property
    def latest(self) -> Mapping[str, tuple[Window, Interval]]:
        """The value of each goal in the latest window that has one."""
        return {
            name: (one, value)
            for one in self.windows
            for name, value in one.risks.items()
            if math.isfinite(value.value)
        }

    @property
    def missed(self) -> tuple[str, ...]:
        """The goals that lie outside the interval of their latest value, on the wrong side."""
        goals = {str(goal): goal for goal in self.certified.goals}
        return tuple(
            name for name, (_, one) in self.latest.items()
            if (one.high < goals[name].value if goals[name].spec.at_least else one.low > goals[name].value)
        )  # fmt: skip

    @property
    def last_label(self) -> str:
        """The beginning of the latest window with labels, "" without one."""
        return max((one.start for one in self.windows if one.labelled), default="")

    def records(self) -> list[Row]:
        """Return one dictionary per window of time."""
        rows: list[Row] = []
        for window in self.windows:
            row: Row = {name: getattr(window, name) for name in ("start", "images", "patients", "labelled")}
            row |= {"referred": window.referred.value, "calibration": window.calibration.value}
            rows.append(row | {name: risk.value for name, risk in window.risks.items()})
        return rows

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against the certificate and for drift, day by day, and the wealth of an alarm."""
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
        """Return plain dictionaries for JSON."""
        content: JsonObject = json_content(vars_of(self))
        content["drift"]["reference_patients"] = content.pop("reference")
        return {"schema": RESULT_SCHEMA, "alarm": self.alarm, **content}


LEVEL = 0.05


def monitor(
    predictions: Predictions | Sequence[Predictions],
    certificate: Certified | str | Path,
    *,
    date_column: str = "date",
    within: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Watch whether a certificate still holds on new patients: drift without labels, risk where there are labels.

    Args:
        predictions: New predictions with a date per image; read them with `unlabelled=True` where labels are missing. Images of the
            validation split are the reference of drift, in place of the values that the certificate holds.
        certificate: What `retinabench transfer --json` wrote, of a threshold or of zones.
        date_column: The column with the date of each image, as 2026-03-31 or 31.03.2026.
        within: A column whose groups are watched, too.
        level: Probability of a false alarm over all time, of each of the two alarms.
        seed: Seed of the randomised p-values of drift.

    Returns:
        The evidence day by day, and the values per window of time; `alarm` says whether an alarm was raised.

    Raises:
        InputError: There are no new images, a date is missing, or the certificate cannot be read.

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
    certified = certificate if isinstance(certificate, Certified) else read_certificate(Path(certificate))
    images, reference = follow_up(files, certified.uncertainty, certified.decision, date_column, within)
    return watch(images, certified, reference=reference, level=level, seed=seed)


def watch(
    images: Watched,
    certified: Certified,
    *,
    reference: Watched | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Watch the images of a follow-up."""
    if not 0 < level < 1:
        raise InputError(f"the level is {level}", hint="A rate of false alarms lies between 0 and 1, such as 0.05.")
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
    judged = [(goal, *certified.sums(goal, images)) for goal in certified.goals]
    bets = [_increments(certified, *one, images, visits) for one in judged]
    informative = [visits.sums(den) > 0 for _, _, den in judged]
    names = [str(name) for name in np.unique(images.group) if name]
    needed = (2 if names else 1) / level  # half of the level is for the groups
    groups = []
    for name in names:
        rows = images.group == name
        for goal, num, den in judged:
            x = _increments(certified, goal, num & rows, den & rows, images, visits)
            counted = visits.sums(den & rows) > 0
            groups.append(
                _evidence(f"{name}: {goal}", visits, _path(visits, x), len(names) * len(judged) * needed, counted)
            )
    risks = tuple(
        _evidence(str(goal), visits, _path(visits, x), len(bets) * needed, some)
        for (goal, _, _), x, some in zip(judged, bets, informative, strict=True)
    )
    together = visits.evidence(lambda rows: mean_log_wealth(np.stack([log_wealth(x[rows]) for x in bets])))
    combined = _evidence("certified risks", visits, together, needed, np.any(informative, axis=0))
    before = certified.reference
    if reference is not None:
        codes = np.unique(reference.patient, return_inverse=True)[1]
        before = {name: getattr(reference, name)[one_image_each(reference.image_id, codes)] for name in DRIFT}
    drift = _evidence(
        "drift", visits, drift_evidence(images, visits, before, seed), 1 / level, np.ones(len(visits.day), bool)
    )
    unit, shown = _windows(images, certified, judged)
    return Monitoring(
        certified, level, len(images), len(np.unique(images.patient)), int(images.labelled.sum()), left_out, risks, combined, tuple(groups), drift,
        len(before.get("prob", ())), unit, shown,
        tuple(notes),
    )  # fmt: skip


def _notes_on_patients(images: Watched, certified: Certified) -> list[str]:
    """Refuse or note images without a patient: bets on images that fail together raise false alarms too often."""
    refuse_partly(images.patient, images.image_id, "images")
    alone = (images.patient == images.image_id) | is_own(images.patient, images.image_id)
    most, notes = certified.most_images, []
    if most > 1 and alone.all():
        raise InputError(
            f"is missing, and the certificate is of patients with up to {most} images",
            column="patient_id",
            hint="Add the patient of every image: images of one patient fail together.",
        )
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


def _evidence(name: str, visits: Visits, path: Floats, needed: float, informative: NDArray[np.bool_]) -> Evidence:
    """Reduce a path over T visits to days; an alarm between two visits of a day counts."""
    last = np.append(np.flatnonzero(np.diff(visits.day).astype(np.int64) > 0), len(path) - 1)
    crossed = first_alarm(path, 1 / needed)
    alarm = None if crossed is None else visits.day[crossed]
    return Evidence(name, visits.day[last], path[last], needed, alarm, int(informative.sum()))


def _path(visits: Visits, increments: Floats) -> Floats:
    """(T,) log of the evidence of bets with these increments, (T,)."""
    return visits.evidence(lambda rows: log_wealth(increments[rows]))


def _increments(certified: Certified, goal: Goal, num: Bools, den: Bools, images: Watched, visits: Visits) -> Floats:
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
    images: Watched, certified: Certified, judged: Sequence[tuple[Goal, Bools, Bools]]
) -> tuple[str, tuple[Window, ...]]:
    start, number, unit = windows(images.day)
    referred = ~certified.retained(images)
    rows = []
    for k, first in enumerate(start):
        here = number == k
        patient = images.patient[here]
        known = here & images.labelled
        risks = {str(goal): _estimate(certified, goal, num[here], den[here], patient) for goal, num, den in judged}
        found, of = (one[here] for one in certified.sums(SENSITIVITY, images))
        rows.append(
            Window(
                str(first),
                int(here.sum()),
                len(np.unique(patient)),
                int(known.sum()),
                clustered_proportion(referred[here], np.ones(len(patient)), patient),
                clustered_mean((images.label - images.prob)[known], images.patient[known]),
                _estimate(certified, SENSITIVITY, found, of, patient),
                risks,
            )
        )
    return unit, tuple(rows)


def _estimate(certified: Certified, goal: Goal, num: Bools, den: Bools, patient: NDArray[np.str_]) -> Interval:
    """The value of a target with its clustered interval; NaN where nothing counts."""
    codes = np.unique(patient, return_inverse=True)[1]
    weight = weights(codes, certified.per)
    risk = ratio_interval(num * weight, den * weight, codes)
    return Interval(1 - risk.value, 1 - risk.high, 1 - risk.low) if goal.spec.at_least else risk
