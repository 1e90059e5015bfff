"""Watch a certified risk while new patients arrive: alarms at most at the stated rate, over unlimited looks.

Three things are watched, patient after patient (`follow_up`):

* **The certified risks**, with labels. A patient with the sums num and den of a risk with the goal a enters an e-process
  (`e_process`) by x = (num - a den) / (a m), where m bounds den: 1 per image of a random patient, the largest number of images of a
  validation patient per image (a patient with more counts as so many). While E[num] <= a E[den] holds at all times, the alarm rings at any time with probability at most
  `level`. Several risks are watched together by the mean of their wealths; one that reaches (number of risks) / level by itself is
  named. A patient without labels changes nothing; which patients have labels must not depend on whether the model is wrong.
* **Drift**, without labels: conformal p-values of each patient's mean probability and mean uncertainty among the validation patients,
  if the files hold some, and all earlier patients. While patients are exchangeable the alarm rings with probability at most `level`.
  It sees changes of these distributions and no others: errors of which the model is sure leave no trace in them.
* **Per window of time**: the share referred, calibration in the large (observed minus predicted share of referable images) and the
  risks, with 95 % intervals that are clustered by patient and valid for one window each, not for a search among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.risks import Goal, ratio_interval, weights
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import clustered_proportion
from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.monitoring.e_process import (
    conformal_p_values,
    drift_log_wealth,
    first_alarm,
    log_wealth,
    mean_log_wealth,
)
from retinabench.metrics.monitoring.follow_up import Units, Watched, windows

Floats = NDArray[np.float64]
Days = NDArray[np.datetime64]
SCHEMA = "retinabench.monitor/1"
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Evidence:
    """The path of an e-process.

    Args:
        name: What is watched.
        day: (D,) the days on which patients entered.
        log_wealth: (D,) natural logarithm of the wealth after the last patient of each day.
        needed: Wealth at which the alarm rings.
        alarm: Day on which it first rang, else None.
        patients: Number of patients that could change the wealth.
    """

    name: str
    day: Days
    log_wealth: Floats
    needed: float
    alarm: np.datetime64 | None
    patients: int

    def to_dict(self) -> dict[str, Any]:
        """Return the path for JSON."""
        return {
            "name": self.name,
            "patients": self.patients,
            "needed": self.needed,
            "log_wealth": float(self.log_wealth[-1]),
            "largest_log_wealth": float(self.log_wealth.max()),
            "alarm": None if self.alarm is None else str(self.alarm),
            "path": [[str(day), float(value)] for day, value in zip(self.day, self.log_wealth, strict=True)],
        }


@dataclass(frozen=True)
class Window:
    """What a window of time shows.

    Args:
        start: Its first day.
        images: Number of images.
        patients: Number of patients.
        labelled: Number of images with a label.
        referred: Share of images referred.
        calibration: Observed minus predicted share of referable images, over labelled ones.
        risks: Name of a certified risk -> its estimate.
    """

    start: str
    images: int
    patients: int
    labelled: int
    referred: Interval
    calibration: Interval
    risks: Mapping[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            **vars(self),
            "referred": self.referred.to_dict(),
            "calibration": self.calibration.to_dict(),
            "risks": {name: one.to_dict() for name, one in self.risks.items()},
        }


@dataclass(frozen=True, eq=False)
class Monitoring:
    """What the follow-up of a certificate shows.

    Args:
        certified: The frozen thresholds and certified goals.
        level: Rate of false alarms over all time, of the risks and of the drift each.
        images: Number of images.
        patients: Number of patients.
        labelled: Number of images with a label.
        overall: Name of a certified risk -> its estimate over all labelled images.
        risks: One e-process per certified risk.
        combined: Their mean; None without risks.
        drift: The e-process of drift.
        reference: Number of validation patients that drift is measured against; 0: the follow-up's own past.
        unit: What a window is: day, week, month or year.
        windows: The windows in order.
        notes: What a reader must know.
    """

    certified: Certified
    level: float
    images: int
    patients: int
    labelled: int
    overall: Mapping[str, Interval]
    risks: tuple[Evidence, ...]
    combined: Evidence
    drift: Evidence
    reference: int
    unit: str
    windows: tuple[Window, ...]
    notes: tuple[str, ...]

    @property
    def alarm(self) -> bool:
        """Whether an alarm has rung."""
        return self.combined.alarm is not None or self.drift.alarm is not None

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the certified risks that reached their own limit."""
        return tuple(one.name for one in self.risks if one.alarm is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries for JSON."""
        return {
            "schema": SCHEMA,
            "alarm": self.alarm,
            "level": self.level,
            "images": self.images,
            "patients": self.patients,
            "labelled": self.labelled,
            "certified": self.certified.to_dict(),
            "overall": {name: one.to_dict() for name, one in self.overall.items()},
            "risks": [one.to_dict() for one in self.risks],
            "combined": self.combined.to_dict(),
            "drift": {**self.drift.to_dict(), "reference_patients": self.reference},
            "unit": self.unit,
            "windows": [one.to_dict() for one in self.windows],
            "notes": list(self.notes),
        }


def monitor(
    images: Watched,
    certified: Certified,
    *,
    reference: Watched | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Watch the images of a follow-up.

    Args:
        images: The images, dated; labels may be missing.
        certified: The frozen thresholds and certified goals.
        reference: Validation images, for drift.
        level: Rate of false alarms over all time.
        seed: Seed of the ties of conformal p-values.

    Returns:
        The e-processes and windows.

    Raises:
        InputError: There are no patients but those of validation.
    """
    notes = []
    if reference is not None:
        known = np.isin(images.patient, reference.patient)
        if known.all():
            raise InputError("every patient is in the validation split", hint="Give patients who came later.")
        if known.any():
            notes.append(f"{int(known.sum()):,} images of validation patients are left out")
            images = images.take(~known)
    units = Units.of(images)
    if units.later:
        notes.append(f"{units.later:,} images of later days of a patient are shown per window but not tested")
    if not images.labelled.any():
        notes.append("no labels: the certified risks cannot be watched, only drift")
    judged = [(goal, *certified.sums(goal, images)) for goal in certified.goals]
    paths = [_risk_path(certified, *one, images, units) for one in judged]
    informative = [units.sums(den) > 0 for _, _, den in judged]
    needed = 1 / level
    risks = tuple(
        _evidence(str(goal), units, path, len(paths) * needed, some)
        for (goal, _, _), path, some in zip(judged, paths, informative, strict=True)
    )
    together = np.any(informative, axis=0)
    combined = _evidence("certified risks", units, mean_log_wealth(np.stack(paths)), needed, together)
    drift_path = _drift_path(images, units, reference, seed)
    drift = _evidence("drift", units, drift_path, needed, np.ones(len(drift_path), bool))
    unit, shown = _windows(images, certified, judged)
    overall = {str(goal): _estimate(certified, goal, num, den, images.patient) for goal, num, den in judged}
    return Monitoring(
        certified, level, len(images), len(units.day), int(images.labelled.sum()), overall, risks, combined, drift,
        0 if reference is None else len(np.unique(reference.patient)), unit, shown, tuple(notes),
    )  # fmt: skip


def _evidence(
    name: str, units: Units, path: Floats, needed: float, informative: NDArray[np.bool_]
) -> Evidence:
    """Reduce a path over T units to days; an alarm between two patients of a day counts."""
    last = np.append(np.flatnonzero(np.diff(units.day).astype(np.int64) > 0), len(path) - 1)
    rang = first_alarm(path, 1 / needed)
    alarm = None if rang is None else units.day[rang]
    return Evidence(name, units.day[last], path[last], needed, alarm, int(informative.sum()))


def _risk_path(
    certified: Certified, goal: Goal, num: Floats, den: Floats, images: Watched, units: Units
) -> Floats:
    """(T,) log wealth of bets against E[num] <= a E[den], a being the goal of the risk."""
    top, bottom, most = units.sums(num), units.sums(den), float(certified.most_images)
    if certified.per == "patient-image":
        known = np.ones(len(den)) if goal.spec.of_referred else images.labelled.astype(np.float64)
        of_patient = np.maximum(units.sums(known), 1)
        top, bottom, most = top / of_patient, bottom / of_patient, 1.0
    bounded = np.minimum(1, most / np.maximum(bottom, 1e-300))
    a = goal.max_risk
    return log_wealth(bounded * (top - a * bottom) / (a * most))


def _drift_path(images: Watched, units: Units, reference: Watched | None, seed: int) -> Floats:
    """(T,) log of the mean wealth of bets against exchangeability of mean probability and mean uncertainty."""
    streams = []
    for k, name in enumerate(("prob", "uncertainty")):
        before = np.zeros(0)
        if reference is not None:
            _, codes = np.unique(reference.patient, return_inverse=True)
            before = np.bincount(codes, getattr(reference, name)) / np.bincount(codes)
        values = units.means(getattr(images, name))
        # Sums of equal numbers in another order differ in the last digit: such values are ties.
        p_values = conformal_p_values(np.round(before, 12), np.round(values, 12), seed + k)
        streams.append(drift_log_wealth(p_values))
    return mean_log_wealth(np.stack(streams))


def _windows(
    images: Watched, certified: Certified, judged: Sequence[tuple[Goal, Floats, Floats]]
) -> tuple[str, tuple[Window, ...]]:
    start, number, unit = windows(images.day)
    referred = ~certified.retained(images)
    found = []
    for k, first in enumerate(start):
        here = number == k
        patient = images.patient[here]
        known = here & images.labelled
        risks = {
            str(goal): _estimate(certified, goal, num[here], den[here], patient) for goal, num, den in judged
        }
        found.append(
            Window(
                str(first),
                int(here.sum()),
                len(np.unique(patient)),
                int(known.sum()),
                clustered_proportion(referred[here], np.ones(len(patient)), patient),
                _mean((images.label - images.prob)[known], images.patient[known]),
                risks,
            )
        )
    return unit, tuple(found)


def _estimate(
    certified: Certified, goal: Goal, num: Floats, den: Floats, patient: NDArray[np.str_]
) -> Interval:
    """The value of a target with its clustered interval; NaN where nothing counts."""
    codes = np.unique(patient, return_inverse=True)[1]
    weight = weights(codes, certified.per)
    risk = ratio_interval(num * weight, den * weight, codes)
    return Interval(1 - risk.value, 1 - risk.high, 1 - risk.low) if goal.spec.at_least else risk


def _mean(values: Floats, patient: Sequence[str] | NDArray[np.str_]) -> Interval:
    """The mean with its interval by t, clustered by patient; no ends for fewer than two patients."""
    if not len(values):
        return Interval(np.nan)
    mean = float(values.mean())
    _, codes = np.unique(patient, return_inverse=True)
    sums = np.bincount(codes, values - mean)
    patients = len(sums)
    if patients < 2:
        return Interval(mean)
    error = np.sqrt(patients / (patients - 1) * float(sums @ sums)) / len(values)
    half = float(stats.t.ppf(0.975, patients - 1) * error)
    return Interval(mean, mean - half, mean + half)
