"""Two thresholds: call, refer, or release; and rules of their own for the groups of a column.

**Two certificates.** The negative zone is a rule of its own: it retains the images with prob <= a, calls all of them negative, and refers
the others. So is the positive zone, with -prob <= -b. `certificate.certify` widens each, a ascending and b descending, as long as its
goals are shown: NPV, sensitivity and missed (severe) disease of the negative zone, PPV and specificity of the positive one. The
expert counts as reading without error, so that no goal depends on the other zone. Both claims hold together with
probability at least 1 - delta, as each is tested at delta / 2; if only one zone has goals, the other one is empty, and it is tested at delta.

**Zones that would meet.** A sequence that ended before its first false hypothesis has certified *all* candidates from its begin to its
end, together. Where the widest zones overlap, the pair a < b of certified candidates that leaves the expert the fewest images is
taken; among equals that with two zones, and with the smaller negative one. The level is the same.

References:
    Angelopoulos, Pomerantz, Do, Bates, Bridge, Elton, Lev, González, Jordan and Malik, Conformal triage for medical imaging AI
    deployment, medRxiv 2024.02.09.24302543 (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.results import Document, JsonObject, Row
from retinabench.metrics.clinical.groups import group_labels
from retinabench.metrics.follow_up import Watched, reference_values
from retinabench.metrics.guarantees.certificate import Certificate, certify, rounded_up
from retinabench.metrics.guarantees.goals import Goal, Per, ReferralCases, as_goals, ratio_interval
from retinabench.metrics.guarantees.transfer import (
    FrozenOnSets,
    Realised,
    Transfer,
    meeting,
    notes_on,
    of_file,
    on_sets,
    validation_and_test,
)
from retinabench.metrics.intervals import Interval, finite_or_none
from retinabench.metrics.patients import by_patient
from retinabench.metrics.weighted_images import Floats, check_draws
from retinabench.predictions.table import Predictions

Side = Literal["negative", "positive"]
ZoneGoals = Mapping[Side, tuple[Goal, ...]]

# Zone -> the targets that its threshold decides.
TARGETS_OF: dict[Side, tuple[str, ...]] = {
    "negative": ("npv", "sensitivity", "missed_referable", "severe_sensitivity", "missed_severe"),
    "positive": ("ppv", "specificity"),
}

BEGIN: dict[Side, float] = {"negative": 0.25, "positive": 0.05}
"""Share of the patients with which a sequence begins: a zone may hold a small part of them."""


def zone_goals(goals: Sequence[Goal | str]) -> ZoneGoals:
    hint = "npv, sensitivity, missed_referable, severe_sensitivity or missed_severe (negative zone); ppv or specificity (positive)."
    if not goals:
        raise InputError("the zones have no goal", hint=f"Give goals for {hint}")
    found = as_goals("selective_risk", 0.05, goals)
    for goal in found:
        if not any(goal.target in targets for targets in TARGETS_OF.values()):
            raise InputError(f"{goal.target} is the goal of no zone", hint=f"Zones have goals for {hint}")
    return {side: tuple(goal for goal in found if goal.target in targets) for side, targets in TARGETS_OF.items()}


def zone_cases(cases: ReferralCases, prob: Floats, side: Side) -> ReferralCases:
    """Return the images as the rule of one zone sees them: it calls all that it retains, and refers the others. Shapes: `prob` (N,)."""
    positive = side == "positive"
    return replace(cases, positive=np.full(len(cases), positive), uncertainty=-prob if positive else prob)


def zone_certificates(
    cases: ReferralCases, prob: Floats, goals: ZoneGoals, delta: float, most_images: int | None = None
) -> dict[Side, Certificate]:
    """Certify the goals of each zone, both zones together with confidence 1 - delta. Shapes: `prob` (N,)."""
    if not 0 < delta < 1:  # of both zones, before it is halved
        raise InputError(f"delta is {delta:g}", hint="To be certified, it lies between 0 and 1.")
    asked = {side: of for side, of in goals.items() if of}
    return {
        side: certify(zone_cases(cases, prob, side), of, delta / len(asked), most_images=most_images, share=BEGIN[side])
        for side, of in asked.items()
    }


def plain_ends(cases: ReferralCases, prob: Floats, goals: ZoneGoals) -> tuple[float | None, float | None]:
    """Return the ends of the widest zones that meet their goals by plain estimates and do not overlap. Shapes: `prob` (N,)."""
    below, above = (_plain(zone_cases(cases, prob, side), goals[side]) for side in TARGETS_OF)
    return _apart(prob, cases.weight, below, above)


def certified_ends(
    cases: ReferralCases, prob: Floats, certificates: Mapping[Side, Certificate]
) -> tuple[float | None, float | None]:
    """Return the ends of the widest certified zones that do not overlap. Shapes: `prob` (N,)."""
    below, above = (_certified_candidates(zone_cases(cases, prob, side), certificates.get(side)) for side in TARGETS_OF)
    return _apart(prob, cases.weight, below, above)


def _certified_candidates(cases: ReferralCases, certificate: Certificate | None) -> Floats:
    """The observed thresholds that a certificate covers, ascending."""
    if certificate is None or certificate.threshold is None:
        return np.empty(0)
    places = np.unique(rounded_up(cases.uncertainty))
    return np.asarray(places[(places >= certificate.begins) & (places <= certificate.threshold)])


def _plain(cases: ReferralCases, goals: Sequence[Goal]) -> Floats:
    """The observed thresholds that meet the goals by plain estimates, ascending; none where there are no goals."""
    if not goals:
        return np.empty(0)
    thresholds, met, _ = meeting(cases, goals)
    return np.asarray(thresholds[met & np.isfinite(thresholds)])


def _apart(prob: Floats, weight: Floats, below: Floats, above: Floats) -> tuple[float | None, float | None]:
    """The ends a < b of the zones, of `below` (A,) and `above` (B,), that leave the expert the fewest images; among equals two zones, and the smaller a."""
    order = np.argsort(prob)
    cumulated = np.append(0.0, np.cumsum(weight[order]))
    a = np.append(-np.inf, below)
    starts = np.append(np.sort(-above), np.inf)
    b = starts[np.searchsorted(starts, a, side="right")]
    negative = cumulated[np.searchsorted(prob[order], a, side="right")]
    positive = cumulated[-1] - cumulated[np.searchsorted(prob[order], b, side="left")]
    automatic = np.round(negative + positive, 9)
    best = np.flatnonzero(automatic == automatic.max())
    both = best[np.isfinite(a[best]) & np.isfinite(b[best])]
    k = int((both if len(both) else best)[0])
    return finite_or_none(a[k]), finite_or_none(b[k])


SCHEMA = "retinabench.triage/1"
READ = 0.5  # between the 0 of an image in a zone and the 1 of one that the expert reads


@dataclass(frozen=True)
class Zone(Document):
    """One zone, its certificate and its plain choice."""

    _keys: ClassVar = {"plain": "plain_choice"}

    goals: tuple[Goal, ...]
    threshold: float | None
    plain: float | None
    certificate: Certificate | None
    why: str | None = None


@dataclass(frozen=True)
class Triage(FrozenOnSets):
    """Three zones from validation, what they do to the test sets, and whether their guarantees hold there.

    Args:
        per: The estimand of everything that is chosen, certified and reported, one of `goals.PER`.
        delta: Probability of a wrong certificate, of both zones together; None: plain choice.
        zones: `negative` and `positive`, as far as they have goals.
        plain_read: Share of the validation images that the expert reads at the plain choice.
        sets: `validation`, `in_domain` and `shifted`, as far as they exist -> what the zones do there; empty if both are empty.
        shares: Name of a set -> shares of the images called negative and positive by the zones.
        reference: Probability and uncertainty of validation patients, by which drift is seen later.
        notes: What a reader of the numbers must know.

    Examples:
        >>> import retinabench as rb
        >>> split = ["validation"] * 3 + ["test"] * 3
        >>> predictions = rb.Predictions(list("abcdef"), [0, 1, 1] * 2, [0.1, 0.5, 0.9] * 2, split=split)
        >>> found = rb.triage(predictions, ["npv=.9", "ppv=.9"], bootstrap=20)
        >>> found.thresholds
        (0.1, 0.5)
    """

    _schema = SCHEMA

    per: Per
    delta: float | None
    zones: Mapping[Side, Zone]
    plain_read: float
    sets: Mapping[str, Realised]
    shares: Mapping[str, tuple[Interval, Interval]]
    reference: Mapping[str, Sequence[float]]
    notes: tuple[str, ...]

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(goal for zone in self.zones.values() for goal in zone.goals)

    @property
    def thresholds(self) -> tuple[float | None, float | None]:
        """The ends of the negative and of the positive zone; None where it is empty."""
        negative, positive = (self.zones[side].threshold if side in self.zones else None for side in TARGETS_OF)
        return negative, positive

    @property
    def refused(self) -> tuple[Side, ...]:
        """The zones with goals for which no threshold is found."""
        return tuple(side for side, zone in self.zones.items() if zone.threshold is None)

    def records(self) -> list[Row]:
        rows: list[Row] = []
        for name, one in self.sets.items():
            row: Row = {"set": name, "per": self.per, "images": one.images}
            row |= {side: share.value for side, share in zip(TARGETS_OF, self.shares[name], strict=True)}
            row |= {"read": one.referral_rate.value}
            row |= {target: one.targets[target].value for target in ("npv", "ppv", "sensitivity", "specificity")}
            rows.append(row | {"guarantee": one.guarantee})
        return rows

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries; infinite thresholds of a certificate are written as text."""
        content = super().to_dict()
        for name, shares in content.pop("shares").items():
            content["sets"][name] |= dict(zip(TARGETS_OF, shares, strict=True))
        return content


def triage(
    predictions: Predictions,
    goals: Sequence[Goal | str],
    *,
    delta: float | None = None,
    per: Per = "image",
    most_images: int | None = None,
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
) -> Triage:
    """Choose the widest automatic zones on the in-domain validation split, freeze them, and report on the test sets.

    Args:
        predictions: Predictions with a validation and a test split.
        goals: Goals of the negative and of the positive zone, such as ``["npv=.98", "sensitivity=.95", "ppv=.9"]``; see `TARGETS_OF`.
        delta: None for the plain choice; else certify all goals with confidence 1 - delta, half of delta for each zone.
        per: The estimand, as in `transfer`.
        most_images: The largest number of images that a new patient may have; None: that of the validation patients.
        reader: Sensitivity and specificity of the human who reads the images between the zones, for the four readings.
        bootstrap: Permutations of the screen for covariate shift, at least 199.
        seed: Seed of these permutations.

    Returns:
        The zones and what they do on every set.

    Raises:
        InputError: Validation or test images are missing, a patient is in both, or a goal is of no zone.

    Examples:
        >>> import retinabench as rb
        >>> p = rb.Predictions(list("abcd"), [0, 1] * 2, [0.1, 0.9] * 2, split=["validation"] * 2 + ["test"] * 2)
        >>> rb.triage(p, ["npv=.9"], bootstrap=20).thresholds
        (0.1, None)
    """
    check_draws(bootstrap, seed)
    wanted = zone_goals(goals)
    parts = validation_and_test(predictions, certifying=delta is not None)
    reference = reference_values(Watched.of(parts["validation"], "total", None))
    if per == "patient":
        parts, most_images = {name: by_patient(part, "margin") for name, part in parts.items()}, None
    cases = {name: ReferralCases.of(part, "margin", 0.5, per) for name, part in parts.items()}
    first, prob = cases["validation"], parts["validation"].prob
    with of_file(predictions.source):
        chosen = plain_ends(first, prob, wanted)
        certificates = {} if delta is None else zone_certificates(first, prob, wanted, delta, most_images)
    ends = chosen if delta is None else certified_ends(first, prob, certificates)
    zones = {
        side: Zone(wanted[side], end, plain, (own := certificates.get(side)), _why(own) if end is None else None)
        for side, end, plain in zip(TARGETS_OF, ends, chosen, strict=True)
        if wanted[side]
    }
    sets: dict[str, Realised] = {}
    shares: dict[str, tuple[Interval, Interval]] = {}
    if any(end is not None for end in ends):
        three = {name: _three(cases[name], parts[name].prob, *ends) for name in parts}
        shares = {name: _shares(one) for name, one in three.items()}
        features = {name: part.prob[:, None] for name, part in parts.items()}
        kept = [goal for zone in zones.values() if zone.threshold is not None for goal in zone.goals]
        with of_file(predictions.source):
            sets = on_sets(three, parts, READ, kept, features, reader, bootstrap, seed, certified=delta is not None)
    read = float(np.average(_three(first, prob, *chosen).uncertainty, weights=first.weight))
    notes = notes_on(parts, cases, sets, [*certificates.values()], "called negative")
    return Triage(per, delta, zones, read, sets, shares, reference, tuple(notes))


def _three(cases: ReferralCases, prob: Floats, a: float | None, b: float | None) -> ReferralCases:
    """The images as the three zones see them: uncertainty 0 in a zone, 1 where the expert reads."""
    negative = np.zeros(len(prob), bool) if a is None else prob <= a
    positive = np.zeros(len(prob), bool) if b is None else prob >= b
    return replace(cases, positive=positive, uncertainty=np.where(negative | positive, 0.0, 1.0))


def _shares(three: ReferralCases) -> tuple[Interval, Interval]:
    """The shares of the images in the negative and in the positive zone."""
    automatic = three.uncertainty <= READ
    negative, positive = (
        ratio_interval(zone * three.weight, three.weight, three.patient)
        for zone in (automatic & ~three.positive, automatic & three.positive)
    )
    return negative, positive


def _why(certificate: Certificate | None) -> str:
    """Why a zone with goals is empty."""
    if certificate is None:
        return "no threshold reaches its goals on validation beside the other zone"
    if certificate.why is not None:
        return certificate.why
    if certificate.threshold == -math.inf:
        return "no image can be in it with this confidence"
    return "the images for which it is certified are all in the other zone"


@dataclass(frozen=True)
class Within(Document):
    """The rules of the groups of a column by value, and why others have none (`left_out`).

    Every group has thresholds of its own (Mondrian): what is certified of the average need not hold for a site or a camera. A group
    is a study of its own, with its own validation and test images. With K groups in the column each is certified at delta / K, so that all
    certificates hold together with probability at least 1 - delta; nothing is averaged over groups. A group in which nothing can be certified has no
    threshold, and the expert reads its images.
    """

    _schema = "retinabench.within/1"

    column: str
    delta: float | None
    groups: Mapping[str, Transfer | Triage]
    left_out: Mapping[str, str]


def within(
    predictions: Predictions,
    column: str,
    delta: float | None,
    choose: Callable[[Predictions, float | None], Transfer | Triage],
) -> Within:
    """Choose a rule in every group; `choose` takes its images and the share of delta of one group."""
    labels = group_labels(predictions, column)
    names = np.unique(labels).tolist()
    share = None if delta is None else delta / len(names)
    groups, left_out = dict[str, Transfer | Triage](), dict[str, str]()
    for name in names:
        value = name.removeprefix(f"{column}: ")
        try:
            groups[value] = choose(predictions.take(np.flatnonzero(labels == name)), share)
        except InputError as error:
            left_out[value] = error.problem
    if not groups:
        problem = f"no group can choose a threshold: {next(iter(left_out.values()))}"
        raise InputError(problem, file=predictions.source, column=column)
    return Within(column, delta, groups, left_out)
