"""What a decision is worth and costs: net benefit, the disease that is missed all the same, the expert's work, and the best simple rule.

An image is missed where it is referable and neither called referable nor sent to an expert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.results import Document
from retinabench.metrics.clinical.screening_table import (
    Screened,
    images_by_severity,
    reading_calls,
    referral_shares,
    share_interval,
)
from retinabench.metrics.image_sets import margin
from retinabench.metrics.intervals import Interval, binary, clustered_proportion, combinations, combined_proportions
from retinabench.metrics.weighted_images import Bools, Floats, RankedImages, cluster_codes
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import SEVERE

THRESHOLDS = np.round(np.arange(0.05, 0.501, 0.01), 2)
PATIENTS = 1000  # Hours per 1,000 patients.


@dataclass(frozen=True)
class DecisionCurve(Document):
    """Net benefit at each threshold probability, in true positives per case; (T,) each."""

    _optional = ("low", "high", "over_all_low", "over_all_high")

    threshold: Floats
    model: Floats
    treat_all: Floats
    treat_none: float = 0.0
    low: Floats | None = None
    high: Floats | None = None
    over_all_low: Floats | None = None
    over_all_high: Floats | None = None


def net_benefit(
    label: ArrayLike,
    prob: ArrayLike,
    thresholds: ArrayLike = THRESHOLDS,
    *,
    referred: ArrayLike | None = None,
    reader: tuple[float, float] = (1.0, 1.0),
    referral_cost: float = 0.0,
    cluster: ArrayLike | None = None,
    weight: Floats | None = None,
) -> DecisionCurve:
    """Return the decision curve: NB(t) = TP/n - FP/n * t / (1 - t), positive where prob >= t.

    Treating all has q - (1 - q) t / (1 - t) with q the prevalence, treating none 0. With `referred` the
    model's call counts for the retained only; a reader decides on the referred, and `referral_cost` true positives are paid
    for each of them: NB(t) - referral_cost * referred / n.

    References:
        Vickers and Elkin, Decision curve analysis, Med. Decis. Making 26:565 (2006).
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    t = np.atleast_1d(np.asarray(thresholds, np.float64))
    sent = np.zeros(len(y), bool) if referred is None else binary(referred, "referred")
    w = np.ones(len(y)) if weight is None else weight
    n, odds = w.sum(), t / (1 - t)
    s, specificity = reader
    tp = _at_least(p, w * (y & ~sent), t) + s * (w @ (y & sent))
    fp = _at_least(p, w * (~y & ~sent), t) + (1 - specificity) * (w @ (~y & sent))
    model = (tp - odds * fp) / n - referral_cost * (w @ sent) / n
    prevalence = float(w @ y / n)
    curve = DecisionCurve(t, model, prevalence - (1 - prevalence) * odds)
    if cluster is None:
        return curve
    codes, _ = cluster_codes(cluster)
    read = np.where(y, reader[0], 1 - reader[1])
    parts = 3 if referral_cost > 0 and sent.any() else 2
    size, rows = max(1, 2**17 // len(y)), []  # thresholds at a time
    for k in range(0, len(t), size):
        price, called = odds[k : k + size, None], np.where(sent, read, p >= t[k : k + size, None])
        one, paid, also = np.ones_like(price), np.full_like(price, -referral_cost), np.broadcast_to(sent, called.shape)
        # Treating all has the shares of all positives and negatives, so that the difference is odds TN - FN - cost x referred.
        benefit = [one, -price, paid], [y * called, ~y * called, also]
        gain = [price, -one, paid], [~y * (1 - called), y * (1 - called), also]
        both = ((np.hstack(c[:parts]), np.stack(share[:parts], axis=1)) for c, share in (benefit, gain))
        rows.append([end for one in both for end in combinations(*one, codes, w)[1:]])
    low, high, over_low, over_high = np.concatenate(rows, axis=1)
    return replace(curve, low=low, high=high, over_all_low=over_low, over_all_high=over_high)


def _at_least(prob: Floats, case: Floats, thresholds: Floats) -> Floats:
    """Weight of the cases with prob >= t, for each threshold."""
    order = np.argsort(prob, kind="stable")
    below = np.append(0.0, np.cumsum(case[order]))
    return np.asarray(below[-1] - below[np.searchsorted(prob[order], thresholds, "left")])


@dataclass(frozen=True)
class MissedImage:
    """A referable image that the model calls not referable and retains."""

    image_id: str
    patient_id: str | None
    grade: int | None
    prob: float
    uncertainty: float


@dataclass(frozen=True)
class Missed(Document):
    """What is missed after referral, per image, and what referral adds."""

    referable: Interval
    severe: Interval | None
    alone: Interval
    caught: Interval
    errors_caught: Interval
    images: tuple[MissedImage, ...]
    patients: tuple[str, ...]
    referable_patients: int
    curve: Mapping[str, Floats]
    severe_images: int | None

    @property
    def severe_missed(self) -> int:
        return sum(one.grade is not None and one.grade >= SEVERE for one in self.images)


def missed_disease(part: Predictions, positive: Bools, referred: Bools, uncertainty: Floats) -> Missed:
    y = part.label == 1
    patient = part.patients
    codes, _ = cluster_codes(patient)
    lost = y & ~positive & ~referred
    grade = np.full(len(y), -1) if part.grade is None else part.grade
    shares = referral_shares(y, positive, referred, grade >= SEVERE)
    images = tuple(MissedImage(*one, float(uncertainty[k])) for k, one in images_by_severity(part, lost))
    ids = np.unique(patient)
    ill, seen = (np.bincount(codes, case, len(ids)) > 0 for case in (y, positive | referred))
    names = ("missed", "missed_severe", "missed_alone", "caught", "errors_caught")
    missed, severe, alone, caught, errors_caught = (share_interval(shares, name, codes) for name in names)
    of_severe = (None, None) if part.grade is None else (severe, int((y & (grade >= SEVERE)).sum()))
    patients, curve = tuple(str(one) for one in ids[ill & ~seen]), _missed_curve(y, y & ~positive, uncertainty)
    of_all = alone, caught, errors_caught, images, patients, int(ill.sum()), curve
    return Missed(missed, of_severe[0], *of_all, of_severe[1])


def _missed_curve(y: Bools, lost: Bools, uncertainty: Floats) -> dict[str, Floats]:
    """Missed share at every percent of referral, the most uncertain first."""
    ranking, referred = RankedImages(uncertainty), np.linspace(0, 1, 101)
    left = lost.sum() - ranking.cumulate(lost.astype(np.float64))
    missed = np.interp(referred, ranking.edges / len(y), left)
    return {"referred": referred, "missed": missed / y.sum() if y.any() else np.full(101, np.nan)}


@dataclass(frozen=True)
class Workload(Document):
    """The work of the expert."""

    _also = ("hours", "hours_reading_all", "images_per_expert_hour", "patients_per_expert_hour")

    images: Interval
    patients: Interval
    found: Interval
    images_per_patient: float
    images_per_hour: float

    @property
    def hours(self) -> float:
        """Expert hours for 1,000 patients, reading the referred images."""
        return PATIENTS * self.images_per_patient * self.images.value / self.images_per_hour

    @property
    def hours_reading_all(self) -> float:
        """Expert hours for 1,000 patients, reading every image."""
        return PATIENTS * self.images_per_patient / self.images_per_hour

    @property
    def images_per_expert_hour(self) -> float:
        """Images that are screened in the time in which an expert works for an hour; infinite where none is referred."""
        return self.images_per_hour / self.images.value if self.images.value else np.inf

    @property
    def patients_per_expert_hour(self) -> float:
        """Patients who are screened in the time in which an expert works for an hour."""
        return self.images_per_expert_hour / self.images_per_patient


def workload(part: Predictions, referred: Bools, images_per_hour: float, weight: Floats) -> Workload:
    """Return the work that a referral means; a patient counts for the mean of the patient's images; `referred`, `weight` (N,)."""
    codes, patients = cluster_codes(part.patients)
    any_image = np.bincount(codes, referred, patients) > 0
    of_patient = np.bincount(codes, weight) / np.bincount(codes)
    images = clustered_proportion(referred, weight, codes)
    people = clustered_proportion(any_image, of_patient, np.arange(patients))
    found = clustered_proportion(part.label == 1, referred * weight, codes)
    return Workload(images, people, found, len(codes) / patients, images_per_hour)


@dataclass(frozen=True)
class SimpleRule(Document):
    """The best simple rule at the workload of a referral, and how the referral compares with it."""

    name: Literal["around", "below"]  # of the decision threshold
    missed: Interval  # share of the referable images in the end, the reader's misses included
    gain: Interval  # net benefit of the referral by uncertainty less that of this rule, per image
    price: float  # of a false alarm, in missed referable images
    same: bool  # whether both do the same to every image


def best_simple_rule(
    y: Bools, prob: Floats, said: Bools, sent: Bools, codes: NDArray[np.intp], weight: Floats, stated: Screened
) -> SimpleRule:
    """Return the best simple rule that reads as many images as are `sent`, against which reading by uncertainty is held.

    An expert who reads as many images could read those whose probability is nearest to the decision threshold, which is what two thresholds of the
    probability do (`around`), or the most suspicious of those that the model calls not referable, which is what a second, lower threshold does
    (`below`). The better of the two, by its net benefit on the same images, is what a referral by uncertainty is held against.

    The net benefit counts found disease less false alarms, at the price that is stated, or t / (1 - t) at the decision threshold t (Vickers and
    Elkin, 2006), with the stated rates of the reader; differences are paired image by image and clustered by patient.

    A false alarm costs `price` missed referable images.
    Shapes: `y`, `prob`, `said`, `sent`, `codes`, `weight` (N,).
    """

    def benefit(read: Bools) -> tuple[Floats, Floats]:
        called = reading_calls(y, said, read, stated.reader)["reader"]
        return called, np.where(y, called, -price * called)

    price, cut = stated.price, stated.threshold.value
    orders = {"around": np.argsort(-margin(prob, cut), kind="stable"), "below": np.lexsort((np.abs(prob - cut), said))}
    work = (weight * sent).sum() + 1e-9
    rules = {
        name: np.isin(np.arange(len(y)), order[np.cumsum(weight[order]) <= work]) for name, order in orders.items()
    }
    found = {name: benefit(read) for name, read in rules.items()}
    name: Literal["around", "below"] = "below" if weight @ found["below"][1] > weight @ found["around"][1] else "around"
    called, simple = found[name]
    gain = benefit(sent)[1] - simple
    scale = max(1.0, price)  # shares lie in [0, 1]
    parts = [(scale, np.maximum(gain, 0) / scale), (-scale, np.maximum(-gain, 0) / scale)]
    # Two rules may order rounding errors or ties differently, and yet do the same to every image.
    missed = clustered_proportion(1 - called, y * weight, codes)
    return SimpleRule(name, missed, combined_proportions(parts, codes, weight), price, not gain.any())
