"""The referral threshold that reaches its goals on given images by plain estimates, and what a frozen threshold does to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import JsonObject, json_content
from retinabench.metrics.clinical.screening import referral_view_intervals
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.refutation import Refutation, Verdict
from retinabench.metrics.guarantees.risks import TARGETS, ReferralCases
from retinabench.metrics.guarantees.shift.resemblance import Resemblance
from retinabench.metrics.proportions import Interval

Floats = NDArray[np.float64]
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
        return {
            "target": first.target,
            "goal": first.value,
            "threshold": self.threshold,
            "value": self.values[0],
            "referral_rate": self.referral_rate,
            "why": self.why,
            "goals": [
                {**goal.to_dict(), "value": value}
                for goal, value in zip(self.goals, self.values, strict=True)
            ],
        }


def choose_threshold(cases: ReferralCases, goals: Sequence[Goal]) -> Choice:
    """Choose the threshold that reaches the goals on these images, by plain estimates.

    Candidates are minus infinity (refer all) and every distinct uncertainty. Of those that meet every goal, the threshold that refers
    the fewest images is chosen; where the only goal is a `referral_rate`, the one that refers the most.

    An estimate chosen as the best of many is optimistic: about every second such threshold misses its goal on new
    patients. `certificate.certify` gives a bound instead.
    """
    thresholds, met, risks = meeting(cases, goals)
    if not met.any():
        return Choice(tuple(goals), None, (None,) * len(goals), None, _why(risks, goals))
    places = np.flatnonzero(met)
    k = int(places[0] if all(goal.spec.of_referred for goal in goals) else places[-1])
    values = tuple(
        float(1 - r[k] if goal.spec.at_least else r[k]) for r, goal in zip(risks, goals, strict=True)
    )
    rate = float(cases.weight[cases.uncertainty > thresholds[k]].sum() / cases.weight.sum())
    return Choice(tuple(goals), float(thresholds[k]), values, rate)


def meeting(cases: ReferralCases, goals: Sequence[Goal]) -> tuple[Floats, NDArray[np.bool_], list[Floats]]:
    """Return the candidates for a threshold, and which of them meet the goals on these images, by plain estimates.

    Shapes: returns (K,).
    """
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
class Realised:
    """What a frozen threshold does to a set; shares are of the estimand that was asked for.

    Args:
        images: Number of images.
        referred: Number of images referred.
        called: Numbers of images that the model calls negative and positive on its own.
        targets: Name of a target -> its value with its exact-type interval, clustered by patient; see `risks`.
        missed: Number of referable images that are retained and called negative, and of referable images.
        missed_severe: The same of images of grade 3 and 4; None without grades.
        readings: Reading of "referred" -> rate -> value with its interval, per image; see `referral_views`.
        resemblance: Screen for covariate shift against validation; None on validation itself.
        verdicts: What the labels of the set say about each goal that bounds a share within (0, 1); empty on validation.
        certified: Whether these goals are certified.

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

    @property
    def referral_rate(self) -> Interval:
        """Share of the images that is referred."""
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
        content = {
            "images": self.images,
            "referred": self.referred,
            "called": {"negative": self.called[0], "positive": self.called[1]},
            "referral_rate": self.referral_rate,
            "selective_risk": self.selective_risk,
            "targets": self.targets,
            "missed_referable": {"images": self.missed[0], "of": self.missed[1]},
            "readings": self.readings,
        }
        if self.missed_severe is not None:
            content["missed_severe"] = {"images": self.missed_severe[0], "of": self.missed_severe[1]}
        if self.resemblance is not None:
            content |= {
                "resemblance": self.resemblance,
                "guarantee": self.guarantee,
                "verdicts": self.verdicts,
            }
        return {name: json_content(one) for name, one in content.items()}


def realised(
    cases: ReferralCases,
    threshold: float,
    *,
    reader: tuple[float, float] = (0.9, 0.95),
) -> Realised:
    """Return what a frozen threshold does to a set, with 95 % intervals clustered by patient."""
    referred = cases.uncertainty > threshold
    readings = referral_view_intervals(cases.label, cases.positive, referred, cases.patient, reader=reader)
    graded = cases.severe is not None
    targets = {
        name: target.estimate(cases, threshold)
        for name, target in TARGETS.items()
        if graded or name not in ("severe_sensitivity", "missed_severe")
    }
    missed = cases.label & ~cases.positive & ~referred
    severe = None
    if cases.severe is not None:
        severe = int((cases.severe & ~cases.positive & ~referred).sum()), int(cases.severe.sum())
    return Realised(
        len(cases),
        int(referred.sum()),
        (int((~referred & ~cases.positive).sum()), int((~referred & cases.positive).sum())),
        targets,
        (int(missed.sum()), int(cases.label.sum())),
        severe,
        readings,
    )
