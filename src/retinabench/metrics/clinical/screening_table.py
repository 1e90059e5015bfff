"""The screening table: what happens to the images and patients of a set at a threshold, or at a grid of them, as counts and as rates with intervals.

Every rate is a share (success, among): the mean of `success` over images weighted by `among`. `clinic`, `transfer` and the grid of policies take
theirs from here, for one pair of thresholds (N,) or for K of them (K, N). With P and N the positives and negatives, `_ret` retained, `_ref`
referred, and a reader of sensitivity s and specificity p, "after referral" has four readings:

| reading of "referred" | sensitivity | specificity | when it is meant |
|---|---|---|---|
| `retained_only` | TP_ret / P_ret | TN_ret / N_ret | how good is the model on what it keeps; prevalence changes |
| `screen_positive` | (TP_ret + P_ref) / P | TN_ret / N | a referred patient goes to the clinic like a positive one |
| `expert` | (TP_ret + P_ref) / P | (TN_ret + N_ref) / N | an expert who never errs: an upper bound |
| `reader` | (TP_ret + s P_ref) / P | (TN_ret + p N_ref) / N | a reader of stated sensitivity s and specificity p |

A patient is referable if one image is, called so if one retained image is, and referred if an image is and no retained one is called
referable (`by_patient`).

>>> round(predictive_values(0.9, 0.8, 0.1)[0], 6)
0.333333
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import Document, JsonObject, vars_of
from retinabench.metrics import intervals
from retinabench.metrics.classification import false_alarm_price
from retinabench.metrics.clinical.groups import group_members
from retinabench.metrics.image_sets import FrozenThreshold, ReferralRule, referral_rules, referral_uncertainty
from retinabench.metrics.intervals import Interval, binary, clustered_proportion, patient_starts, shares_with_ends
from retinabench.metrics.weighted_images import Bools, Floats, cluster_codes, is_positive
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import SEVERE

Shares = dict[str, tuple[NDArray[Any], NDArray[Any]]]  # Name of a rate -> (success, among).
RATES = ("sensitivity", "specificity", "accuracy", "prevalence", "positive_rate")
PROPORTIONS = ("sensitivity", "specificity", "ppv", "npv", "accuracy", "prevalence", "positive_rate")


@dataclass(frozen=True)
class TwoByTwo:
    """Counts of true and false positives and negatives, and the proportions of them; NaN where nothing is counted."""

    tp: int
    fp: int
    fn: int
    tn: int

    def counts(self, name: str) -> tuple[int, int]:
        """(successes, trials) of the proportion `name` (one of `PROPORTIONS`)."""
        total = self.tp + self.fp + self.fn + self.tn
        return {
            "sensitivity": (self.tp, self.tp + self.fn),
            "specificity": (self.tn, self.tn + self.fp),
            "ppv": (self.tp, self.tp + self.fp),
            "npv": (self.tn, self.tn + self.fn),
            "accuracy": (self.tp + self.tn, total),
            "prevalence": (self.tp + self.fn, total),
            "positive_rate": (self.tp + self.fp, total),
        }[name]

    def rate(self, name: str) -> float:
        successes, trials = self.counts(name)
        return successes / trials if trials else float("nan")

    sensitivity = property(lambda self: self.rate("sensitivity"))
    specificity = property(lambda self: self.rate("specificity"))
    ppv = property(lambda self: self.rate("ppv"))
    npv = property(lambda self: self.rate("npv"))
    accuracy = property(lambda self: self.rate("accuracy"))


def two_by_two(label: ArrayLike, positive: ArrayLike) -> TwoByTwo:
    y, said = binary(label, "label"), binary(positive, "positive")
    tp, fp, fn = (int(np.sum(case)) for case in (y & said, ~y & said, y & ~said))
    return TwoByTwo(tp, fp, fn, len(y) - tp - fp - fn)


def reading_calls(label: Bools, positive: Bools, referred: Bools, reader: tuple[float, float]) -> dict[str, Floats]:
    """Return the probability with which each image is called positive in the end, under each reading; `label` (N,), the others (N,) or (K, N)."""
    if not all(0 <= rate <= 1 for rate in reader):
        raise InputError(f"the reader's sensitivity and specificity are {reader}", hint="Both lie in [0, 1].")
    said = positive.astype(np.float64)
    read = np.where(label, reader[0], 1 - reader[1])
    return {
        "retained_only": said,
        "screen_positive": np.where(referred, 1.0, said),
        "expert": np.where(referred, label, said),
        "reader": np.where(referred, read, said),
    }


def population_weight(label: Bools, prevalence: float | None) -> Floats:
    """(N,) what each image counts for, so that this share of them is referable; 1 where none is stated or one class is missing."""
    found = label.mean()
    if prevalence is None or not 0 < found < 1:
        return np.ones(len(label))
    return np.asarray(np.where(label, prevalence / found, (1 - prevalence) / (1 - found)), np.float64)


def rate_shares(label: Bools, called: NDArray[Any], counted: NDArray[Any] | None = None) -> Shares:
    """Return the rates of calls as (success, among), per image.

    Shapes: `label` (N,) bool; `called` (N,) or (K, N), the probability with which an image is called positive in the end;
    `counted` (N,), what each image counts for, 1 where it is None.
    """
    y, every = label, np.ones(len(label)) if counted is None else counted
    return {
        "sensitivity": (called, y * every),
        "specificity": (1 - called, ~y * every),
        "ppv": (y, every * called),
        "npv": (~y, every * (1 - called)),
        "accuracy": (np.where(y, called, 1 - called), every),
        "prevalence": (y, every),
        "positive_rate": (called, every),
    }


def referral_shares(label: Bools, said: Bools, sent: Bools, severe: Bools | None = None) -> Shares:
    """Return what a referral misses, catches and costs as (success, among), per image.

    An image is missed where it is referable, and neither called referable nor sent to an expert.
    Shapes: `label` (N,); `said` (N,) or (K, N), what the model calls referable; `sent` like it; `severe` (N,).
    """
    y = label
    lost = y & ~said & ~sent
    shares: Shares = {
        "referred": (sent, np.ones(len(y))),
        "referable_of_referred": (y, sent),
        "missed": (lost, y),
        "missed_alone": (~said, y),
        "caught": (sent, y & ~said),
        "errors_caught": (sent, y != said),
    }
    return shares if severe is None else shares | {"missed_severe": (lost, y & severe)}


def share_interval(shares: Shares, name: str, codes: NDArray[np.intp]) -> Interval:
    return clustered_proportion(*shares[name], codes)


def share_intervals(shares: Shares, name: str, codes: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
    """Return one share of K pairs of thresholds with the ends of its interval, for images that are sorted by patient `codes` (N,)."""
    success, among = shares[name]
    if among.ndim > 1:
        return shares_with_ends(success, among, patient_starts(codes))
    rows = among > 0
    return shares_with_ends(success[..., rows], among[rows], patient_starts(codes[rows]))


def referral_view_intervals(
    label: ArrayLike,
    positive: ArrayLike,
    referred: ArrayLike,
    cluster: ArrayLike,
    *,
    reader: tuple[float, float] = (0.9, 0.95),
    weight: Floats | None = None,
) -> dict[str, dict[str, Interval]]:
    """Return the rates under the four readings of "referred", which differ by far more than methods do, with clustered intervals.

    The thresholds behind `positive` and `referred` are taken as frozen, and the reader's rates as known: choose and measure
    them on other data.
    """
    y, sent = binary(label, "label"), binary(referred, "referred")
    codes, _ = cluster_codes(cluster)
    counts = np.ones(len(y)) if weight is None else weight
    views = {}
    for name, called in reading_calls(y, binary(positive, "positive"), sent, reader).items():
        shares = rate_shares(y, called, ~sent * counts if name == "retained_only" else counts)
        views[name] = {rate: share_interval(shares, rate, codes) for rate in RATES}
    return views


def predictive_values(sensitivity: float, specificity: float, prevalence: float) -> tuple[float, float]:
    """Return the predictive values at a stated prevalence q, by Bayes: a study's own values hold at its own mix only.

    PPV = sens q / (sens q + (1 - spec)(1 - q)), NPV = spec (1 - q) / (spec (1 - q) + (1 - sens) q).
    """
    found, false_alarm = sensitivity * prevalence, (1 - specificity) * (1 - prevalence)
    cleared, missed = specificity * (1 - prevalence), (1 - sensitivity) * prevalence
    ppv = found / (found + false_alarm) if found + false_alarm else float("nan")
    npv = cleared / (cleared + missed) if cleared + missed else float("nan")
    return ppv, npv


def predictive_value_intervals(sensitivity: Interval, specificity: Interval, prevalence: float) -> dict[str, Interval]:
    """Return the predictive values at a stated prevalence, with intervals from those of sensitivity and specificity.

    A predictive value is the share of one proportion in the weighted sum of two (`share_of_two`), so that its interval holds
    where sensitivity or specificity is 0 or 1, and is clustered by patient where theirs are. The positive correlation of a patient's
    true and false positives is left out, which widens the intervals a little.
    """
    missed, alarmed = (Interval(1 - one.value, 1 - one.high, 1 - one.low) for one in (sensitivity, specificity))
    return {
        "ppv": intervals.share_of_two(sensitivity, alarmed, prevalence, 1 - prevalence),
        "npv": intervals.share_of_two(specificity, missed, 1 - prevalence, prevalence),
    }


def likelihood_ratios(sensitivity: Interval, specificity: Interval) -> dict[str, Interval]:
    """Return sens / (1 - spec) and (1 - sens) / spec: what a call does to the odds of disease, whatever the prevalence.

    A ratio of two rates is the odds of the share of the one in both, whose interval `share_of_two` has.
    """
    missed, alarmed = (Interval(1 - one.value, 1 - one.high, 1 - one.low) for one in (sensitivity, specificity))
    shares = {
        "positive": intervals.share_of_two(sensitivity, alarmed, 1, 1),
        "negative": intervals.share_of_two(missed, specificity, 1, 1),
    }
    found = {}
    for name, one in shares.items():
        ends = np.array([one.value, one.low, one.high])
        with np.errstate(divide="ignore"):
            found[name] = Interval(*(ends / (1 - ends)).tolist())
    return found


@dataclass(frozen=True)
class ClinicalGoal:
    """A clinical goal: the least sensitivity and specificity asked for, and by whom."""

    sensitivity: float
    specificity: float
    source: str


GOALS = {
    "nhs": ClinicalGoal(0.85, 0.80, "85 % / 80 % as recommended by the NHS (Leibig et al., Sci Rep 7:17816, 2017)"),
    "fda_pivotal": ClinicalGoal(0.85, 0.825, "endpoints of the IDx-DR pivotal trial (npj Digit Med 1:39, 2018)"),
}


def judge_goals(
    label: ArrayLike,
    positive: ArrayLike,
    cluster: ArrayLike | None = None,
    *,
    goals: Mapping[str, ClinicalGoal] = GOALS,
    exploratory: bool = False,
) -> dict[str, JsonObject]:
    """Return, for each goal, whether the estimates meet it and whether the lower bounds do; two different claims.

    Neither is made where the threshold was chosen on the same images (`exploratory`): what it reaches there is optimistic. The bound is the lower end of the exact 95 % interval of `clustered_proportion`, one-sided 97.5 %. An absent class meets
    nothing. The approved IDx-DR met 85 % sensitivity by its estimate (173 of 198) and not by its bound (81.9 %).
    """
    shares = rate_shares(binary(label, "label"), binary(positive, "positive"))
    ids: Any = np.arange(len(shares["sensitivity"][1])) if cluster is None else cluster
    rates = [clustered_proportion(*shares[name], ids, exact=True) for name in ("sensitivity", "specificity")]
    found = {"estimate": [one.value for one in rates], "bound": [one.low for one in rates]}
    judged: dict[str, JsonObject] = {}
    for name, goal in goals.items():
        asked = [goal.sensitivity, goal.specificity]
        met = {f"{kind}_met": not exploratory and bool(np.all(np.array(one) >= asked)) for kind, one in found.items()}
        judged[name] = {**vars_of(goal), **found, **met, "exploratory": exploratory}
    return judged


@dataclass(frozen=True)
class Screened:
    """What the programme states: the frozen thresholds, the reader, and prices."""

    threshold: FrozenThreshold
    referral: ReferralRule
    prevalences: Sequence[float]
    reader: tuple[float, float]
    referral_cost: float
    images_per_hour: float
    subgroups: Sequence[str] | None
    goal: tuple[float, float] = (0.85, 0.8)  # sensitivity and specificity that are to be reached
    population: float | None = None  # share of referable images where the model will work; None: that of the study
    harm: float | None = None  # false alarms per missed image; None: what the decision threshold states

    @property
    def price(self) -> float:
        return false_alarm_price(self.threshold.value) if self.harm is None else 1 / self.harm


THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # about evenly on the scale of the odds
REFERRED = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
MOST_GROUPS = 24
SHOWN = ("sensitivity", "specificity", "ppv", "npv", "referred", "missed", "missed_severe")

MOST_CELLS = 2_000_000  # Policies times images that are computed at once: memory stays small for any number of images.
Ends = tuple[Floats, Floats, Floats]  # K shares and the ends of their intervals


@dataclass(frozen=True)
class PolicyOutcome(Document):
    """What one pair of thresholds does, with a reader of the referred images, per image."""

    sensitivity: Interval
    specificity: Interval
    ppv: Interval
    npv: Interval
    referred: Interval
    referred_patients: Interval
    missed: Interval
    missed_severe: Interval
    missed_images: int
    missed_severe_images: int


@dataclass(frozen=True)
class RankedImage:
    """A referable image that some pair of thresholds misses."""

    image_id: str
    patient_id: str | None
    grade: int | None
    prob: float
    called: int
    referred_from: tuple[int, ...]
    groups: tuple[int, ...] = (0,)

    def missed(self, threshold: int, rule: int) -> bool:
        return threshold >= self.called and rule < self.referred_from[threshold]


@dataclass(frozen=True)
class PolicyGrid(Document):
    """The outcomes of all pairs of thresholds on a grid.

    These numbers are for exploration. A pair of thresholds that is chosen because of them is chosen on the scored images, and
    needs images of its own to be judged on, or a guarantee (`metrics/guarantees`).

    `policies.json` of `report` has `schema` (``retinabench.policies/1``), `reader`, and `entries`, per method its name (`entry`) and what `clinic`
    writes into its own: `thresholds` (T), `referrals` (R rules), `frozen` (the places of the stated pair), and `sets`: set -> subgroup (``""`` is
    the whole set) -> T rows of R outcomes.
    """

    _hidden, _keys = ("images",), {"rules": "referrals", "outcomes": "sets"}

    thresholds: tuple[FrozenThreshold, ...]
    rules: tuple[ReferralRule, ...]
    frozen: tuple[int, int]
    outcomes: Mapping[str, Mapping[str, Sequence[Sequence[PolicyOutcome]]]]
    images: Mapping[str, Sequence[RankedImage]]


def policy_grid(predictions: Predictions, stated: Screened, *, most_groups: int = MOST_GROUPS) -> PolicyGrid:
    thresholds, place = _thresholds(stated.threshold)
    rules = [_rules(predictions, stated, cut.value) for cut in thresholds]
    frozen = (place, rules[place].index(stated.referral))
    outcomes: dict[str, dict[str, list[list[PolicyOutcome]]]] = {}
    images: dict[str, list[RankedImage]] = {}
    for name in ("in_domain", "shifted"):
        part = predictions.select(domain=name, split="test")
        if part is None:
            continue
        calls = np.stack([is_positive(part.prob, cut.value) for cut in thresholds])
        values = [referral_uncertainty(part, stated.referral.uncertainty, threshold=cut.value)[0] for cut in thresholds]
        sent = np.stack([[rule.refers(u) for rule in row] for u, row in zip(values, rules, strict=True)])
        groups = _groups(part, stated.subgroups, most_groups)
        outcomes[name] = {group: _outcomes(part, rows, calls, sent, stated.reader) for group, rows in groups.items()}
        images[name] = _ranked(part, calls, sent, list(groups.values()))
    return PolicyGrid(tuple(thresholds), tuple(rules[place]), frozen, outcomes, images)


def _thresholds(frozen: FrozenThreshold) -> tuple[list[FrozenThreshold], int]:
    """Return the thresholds in their order, with the frozen one in place of its equal, and its place."""
    others = [FrozenThreshold(value) for value in THRESHOLDS if value != frozen.value]
    cuts = sorted([*others, frozen], key=lambda one: one.value)
    return cuts, cuts.index(frozen)


def _rules(predictions: Predictions, stated: Screened, cut: float) -> list[ReferralRule]:
    frozen = stated.referral
    rates = [rate for rate in REFERRED if rate != (0.0 if frozen.extent == "none" else frozen.rate)]
    others = referral_rules(predictions, frozen.uncertainty, cut, rates)
    return sorted([*others, frozen], key=lambda one: (-one.threshold, one.rate or 0.0))


def _groups(part: Predictions, columns: Sequence[str] | None, most: int) -> dict[str, Bools]:
    """Return group -> (N,) rows: the whole set, and the largest subgroups in the order of their columns."""
    members = group_members(part, columns)[0] if part.subgroups else {}
    pairs = [(f"{column}: {value}", rows) for column, groups in members.items() for value, rows in groups.items()]
    if len(named := dict(pairs)) < len(pairs):
        raise InputError("has two subgroups of one name", file=part.source, hint="Rename a column that holds a colon.")
    largest = sorted(named, key=lambda name: (-int(named[name].sum()), name))[:most]
    return {"": np.ones(len(part), bool), **{name: rows for name, rows in named.items() if name in largest}}


def _outcomes(
    part: Predictions, rows: Bools, calls: Bools, sent: Bools, reader: tuple[float, float]
) -> list[list[PolicyOutcome]]:
    """Return T rows of R outcomes of some images; calls (T, N), sent (T, R, N)."""
    codes, _ = cluster_codes(part.patients[rows])
    order = np.argsort(codes, kind="stable")
    chosen, codes, rules = np.flatnonzero(rows)[order], codes[order], sent.shape[1]
    y, starts = part.label[chosen] == 1, patient_starts(codes)
    severe = np.zeros(len(chosen), bool) if part.grade is None else part.grade[chosen] >= SEVERE

    def shares_of(said: Bools, sent: Bools) -> tuple[dict[str, Ends], NDArray[np.intp]]:
        """Return every share of K policies with its interval, and (2, K) images missed; said (1, M), sent (K, M)."""
        called = reading_calls(y, said, sent, reader)["reader"]
        shares = rate_shares(y, called) | referral_shares(y, said, sent, severe)
        found, lost = {name: share_intervals(shares, name, codes) for name in SHOWN}, shares["missed"][0]
        any_image = sent[:, :0]
        if part.patient_id is not None:
            any_image = np.logical_or.reduceat(sent, starts, axis=1)
        patients = any_image.shape[1]
        found["referred_patients"] = shares_with_ends(any_image, np.ones(patients), np.arange(patients))
        return found, np.stack([lost.sum(axis=1), (lost & severe).sum(axis=1)])

    size = max(1, MOST_CELLS // max(len(chosen), 1))
    parts = [
        shares_of(calls[t, chosen][None], sent[t, k : k + size][:, chosen])
        for t in range(len(calls))
        for k in range(0, rules, size)
    ]
    shares = {name: _intervals([part[0][name] for part in parts]) for name in parts[0][0]}
    counts = np.concatenate([part[1] for part in parts], axis=1).tolist()
    outcomes = [
        PolicyOutcome(**dict(zip(shares, values, strict=True)), missed_images=lost, missed_severe_images=lost_severe)
        for *values, lost, lost_severe in zip(*shares.values(), *counts, strict=True)
    ]
    return [outcomes[k : k + rules] for k in range(0, len(outcomes), rules)]


def _intervals(parts: Sequence[Ends]) -> list[Interval]:
    return [Interval(*one) for part in parts for one in zip(*(array.tolist() for array in part), strict=True)]


def _ranked(part: Predictions, calls: Bools, sent: Bools, groups: Sequence[Bools]) -> list[RankedImage]:
    lost, of = (part.label == 1) & (~calls[:, None] & ~sent).any(axis=(0, 1)), np.stack(groups)
    called, first = calls.sum(axis=0), (~sent).sum(axis=1)  # a later rule refers whatever an earlier one does
    return [
        RankedImage(*one, int(called[k]), tuple(first[:, k].tolist()), tuple(np.flatnonzero(of[:, k]).tolist()))
        for k, one in images_by_severity(part, lost)
    ]


def images_by_severity(
    part: Predictions, chosen: Bools
) -> Iterator[tuple[int, tuple[str, str | None, int | None, float]]]:
    """Yield the places of chosen images (N,), the most severe first, with image, patient, grade and probability."""
    grade = np.full(len(part), -1) if part.grade is None else part.grade
    order = np.lexsort((part.image_id, part.prob, -grade))
    for k in order[chosen[order]].tolist():
        patient = None if part.patient_id is None else str(part.patient_id[k])
        yield k, (str(part.image_id[k]), patient, int(grade[k]) if grade[k] >= 0 else None, float(part.prob[k]))
