"""Watch a certified risk while new patients arrive: alarms at most at the stated rate, over unlimited looks.

Three things are watched, patient after patient (`follow_up`):

* **The certified risks**, with labels. A patient with the sums num and den of a risk with the goal a enters an e-process
  (`e_process`) by x = (num - a den) / (a m), where m bounds den: 1 per image of a random patient, the largest number of images of a
  validation patient per image (a patient with more counts as so many). While E[num] <= a E[den] holds at all times, the alarm is ever raised with probability at most
  `level`. Several risks are watched together by the mean of their wealths; one that reaches (number of risks) / level by itself is
  named. A patient without labels changes nothing; which patients have labels must not depend on whether the model is wrong.
* **Drift**, without labels: conformal p-values of each patient's mean probability and mean uncertainty among the validation patients,
  if the files hold some, and all earlier patients. While patients are exchangeable it is raised with probability at most `level`.
  It sees changes of these distributions and no others: errors of which the model is sure leave no trace in them.
* **Per window of time**: the share referred, calibration in the large (observed minus predicted share of referable images) and the
  risks, with 95 % intervals that are clustered by patient and valid for one window each, not for a search among them.

A certificate of `transfer`, watched on later predictions::

    certified = read_certificate(Path("transfer.json"))
    files = [rb.read_predictions(name, unlabelled=True) for name in ("follow-up.csv", "validation.csv")]
    images, reference = follow_up(files, certified.uncertainty, certified.decision, "date")
    found = monitor(images, certified, reference=reference)  # found.alarm, found.to_dict(), found.plot()
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.risks import ratio_interval, weights
from retinabench.metrics.guarantees.shift.estimates import ShiftEstimates, estimates_under_shift
from retinabench.metrics.guarantees.shift.weighted import Images
from retinabench.metrics.monitoring.certified import Certified
from retinabench.metrics.monitoring.e_process import (
    conformal_p_values,
    drift_log_wealth,
    first_alarm,
    log_wealth,
    mean_log_wealth,
)
from retinabench.metrics.monitoring.follow_up import Units, Watched, one_image_each, windows
from retinabench.metrics.monitoring.result import Evidence, Monitoring, Window
from retinabench.metrics.proportions import Interval, clustered_proportion

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LEVEL = 0.05


def monitor(
    images: Watched,
    certified: Certified,
    *,
    reference: Watched | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Monitoring:
    """Watch the images of a follow-up."""
    if not 0 < level < 1:
        raise InputError(
            f"the level is {level}", hint="A rate of false alarms lies between 0 and 1, such as 0.05."
        )
    notes = _notes_on_patients(images, certified)
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
        0 if reference is None else len(np.unique(reference.patient)), unit, shown,
        _expected(certified, reference, images), tuple(notes),
    )  # fmt: skip


def _notes_on_patients(images: Watched, certified: Certified) -> list[str]:
    """Refuse or note images without a patient: bets on images that fail together raise false alarms too often."""
    alone = images.patient == images.image_id
    if certified.most_images == 1 or not alone.any():
        return []
    if alone.all():
        raise InputError(
            f"is missing, and the certificate is of patients with up to {certified.most_images} images",
            column="patient_id",
            hint="Add the patient of every image: images of one patient fail together.",
        )
    return [
        f"{np.count_nonzero(alone):,} of {len(alone):,} images have no patient_id: each is its own patient, and alarms may be too many"
    ]


def _expected(certified: Certified, reference: Watched | None, images: Watched) -> ShiftEstimates | None:
    """What labelled validation images say of the images without labels, under either kind of shift."""
    new = images.take(~images.labelled)
    if reference is None or not len(new):
        return None
    reference = reference.take(reference.labelled)
    if len(set(reference.label.tolist())) < 2:
        return None
    codes = np.unique(new.patient, return_inverse=True)[1]
    unlabelled = Images(new.prob, new.uncertainty, codes, weights(codes, certified.per))
    return estimates_under_shift(
        certified.cases(reference), reference.prob, unlabelled, certified.goals, certified.threshold
    )


def _evidence(
    name: str, units: Units, path: Floats, needed: float, informative: NDArray[np.bool_]
) -> Evidence:
    """Reduce a path over T units to days; an alarm between two patients of a day counts."""
    last = np.append(np.flatnonzero(np.diff(units.day).astype(np.int64) > 0), len(path) - 1)
    crossed = first_alarm(path, 1 / needed)
    alarm = None if crossed is None else units.day[crossed]
    return Evidence(name, units.day[last], path[last], needed, alarm, int(informative.sum()))


def _risk_path(
    certified: Certified, goal: Goal, num: Bools, den: Bools, images: Watched, units: Units
) -> Floats:
    """(T,) log wealth of bets against E[num] <= a E[den], a being the goal of the risk."""
    top, bottom, most = units.sums(num), units.sums(den), float(certified.most_images)
    if certified.per == "patient-image":
        of_patient = np.maximum(units.sums(images.labelled | goal.spec.of_referred), 1)
        top, bottom, most = top / of_patient, bottom / of_patient, 1.0
    bounded = np.minimum(1, most / np.maximum(bottom, 1e-300))
    a = goal.max_risk
    return log_wealth(bounded * (top - a * bottom) / (a * most))


def _drift_path(images: Watched, units: Units, reference: Watched | None, seed: int) -> Floats:
    """(T,) log of the mean wealth of bets against exchangeability of the patients' probability and uncertainty.

    One image stands for each patient: a mean over the images of a patient would vary less the more there are, and would tell
    validation patients with both eyes on one day from later ones with an eye a day.
    """
    rows = units.one_each(images.image_id)
    before = np.zeros(0, np.intp)
    if reference is not None:
        _, codes = np.unique(reference.patient, return_inverse=True)
        before = one_image_each(reference.image_id, codes)
    streams = []
    for k, name in enumerate(("prob", "uncertainty")):
        known = np.zeros(0) if reference is None else getattr(reference, name)[before]
        # The last digit of a computed uncertainty may differ for equal probabilities: such values are ties.
        p_values = conformal_p_values(
            np.round(known, 12), np.round(getattr(images, name)[rows], 12), seed + k
        )
        streams.append(drift_log_wealth(p_values))
    return mean_log_wealth(np.stack(streams))


def _windows(
    images: Watched, certified: Certified, judged: Sequence[tuple[Goal, Bools, Bools]]
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
    certified: Certified, goal: Goal, num: Bools, den: Bools, patient: NDArray[np.str_]
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
