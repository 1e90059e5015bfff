"""What a screening programme would do at other thresholds of decision and referral, on the same images.

These numbers are for exploration. A pair of thresholds that is chosen because of them is chosen on the scored images, and
needs images of its own to be judged on, or a guarantee (`metrics/guarantees`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.clinical.consequences import SEVERE
from retinabench.metrics.clinical.decision_threshold import FrozenThreshold
from retinabench.metrics.clinical.referral_rule import ReferralRule, referral_rule
from retinabench.metrics.clinical.screening import reading_calls
from retinabench.metrics.clinical.set_screening import Screened
from retinabench.metrics.clinical.subgroups import group_members
from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import clustered_proportion
from retinabench.metrics.sorted_images import is_positive
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
MOST_GROUPS = 24
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcome:
    """What one pair of thresholds does, with a reader of the referred images, per image.

    Args:
        sensitivity: Of the model and the reader together.
        specificity: The same.
        ppv: Share of referable images among those that are called referable in the end.
        npv: Share of images that are not referable among the others.
        referred: Share of the images that the reader reads.
        missed: Share of the referable images that are neither called referable nor referred.
        missed_severe: The same share of the images of grade 3 and 4; NaN without grades.
        missed_images: Number of referable images that are missed.
        missed_severe_images: Number of images of grade 3 and 4 that are missed.
    """

    sensitivity: Interval
    specificity: Interval
    ppv: Interval
    npv: Interval
    referred: Interval
    missed: Interval
    missed_severe: Interval
    missed_images: int
    missed_severe_images: int

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome for JSON."""
        return {name: one.to_dict() if isinstance(one, Interval) else one for name, one in vars(self).items()}


@dataclass(frozen=True)
class RankedImage:
    """A referable image that some pair of thresholds misses.

    Args:
        image_id: Its id.
        patient_id: Its patient, where patients are known.
        grade: Its grade, where it is known.
        prob: P(referable).
        called: At how many of the thresholds, from the lowest on, it is called referable.
        referred_from: For every threshold, the first rule that refers it; the number of rules where none does.
    """

    image_id: str
    patient_id: str | None
    grade: int | None
    prob: float
    called: int
    referred_from: tuple[int, ...]

    def missed(self, threshold: int, rule: int) -> bool:
        """Whether the pair at these places misses the image."""
        return threshold >= self.called and rule < self.referred_from[threshold]


@dataclass(frozen=True)
class PolicyGrid:
    """The outcomes of all pairs of thresholds.

    Args:
        thresholds: T decision thresholds, ascending.
        rules: R rules of referral at the frozen decision threshold, from few images to many.
        frozen: Places of the frozen pair: its threshold, its rule.
        outcomes: Set -> group -> T rows of R outcomes; the group "" is the whole set.
        images: Set -> the referable images that some pair misses, the most severe first, then the least probable.
    """

    thresholds: tuple[FrozenThreshold, ...]
    rules: tuple[ReferralRule, ...]
    frozen: tuple[int, int]
    outcomes: Mapping[str, Mapping[str, Sequence[Sequence[Outcome]]]]
    images: Mapping[str, Sequence[RankedImage]]

    def to_dict(self) -> dict[str, Any]:
        """Return the grid for JSON."""
        return {
            "thresholds": [one.to_dict() for one in self.thresholds],
            "referrals": [one.to_dict() for one in self.rules],
            "frozen": list(self.frozen),
            "sets": {
                name: {
                    group: [[one.to_dict() for one in row] for row in rows] for group, rows in groups.items()
                }
                for name, groups in self.outcomes.items()
            },
        }


def policy_grid(predictions: Predictions, stated: Screened) -> PolicyGrid:
    """Compute what the programme would do at other thresholds.

    Args:
        predictions: The predictions, with all their splits.
        stated: The frozen thresholds, the reader, and the columns of subgroups.

    Returns:
        The outcomes per set and for its at most `MOST_GROUPS` largest subgroups, with clustered 95 % intervals.
    """
    thresholds, place = _thresholds(stated.threshold)
    rules = [_rules(predictions, stated, cut.value) for cut in thresholds]
    frozen = (place, rules[place].index(stated.referral))
    outcomes: dict[str, dict[str, list[list[Outcome]]]] = {}
    images: dict[str, list[RankedImage]] = {}
    for name in ("in_domain", "shifted"):
        part = predictions.select(domain=name, split="test")
        if part is None:
            continue
        calls = np.stack([is_positive(part.prob, cut.value) for cut in thresholds])
        sent = np.stack([_sent(part, stated, cut, row) for cut, row in zip(thresholds, rules, strict=True)])
        outcomes[name] = {
            group: _outcomes(part, rows, calls, sent, stated.reader)
            for group, rows in _groups(part, stated.subgroups).items()
        }
        images[name] = _ranked(part, calls, sent)
    return PolicyGrid(tuple(thresholds), tuple(rules[place]), frozen, outcomes, images)


def _thresholds(frozen: FrozenThreshold) -> tuple[list[FrozenThreshold], int]:
    """Return the thresholds in their order, with the frozen one in place of its equal, and its place."""
    others = [FrozenThreshold(value) for value in THRESHOLDS if value != frozen.value]
    found = sorted([*others, frozen], key=lambda one: one.value)
    return found, found.index(frozen)


def _rules(predictions: Predictions, stated: Screened, cut: float) -> list[ReferralRule]:
    """Return the rules from few images to many, with the frozen one in place of its equal."""
    frozen = stated.referral
    others = [
        referral_rule(predictions, frozen.uncertainty, cut, threshold=None, rate=rate)
        for rate in RATES
        if rate != (0.0 if frozen.extent == "none" else frozen.rate)
    ]
    return sorted([*others, frozen], key=lambda one: (-one.threshold, one.rate or 0.0))


def _sent(part: Predictions, stated: Screened, cut: FrozenThreshold, rules: list[ReferralRule]) -> Bools:
    """Return (R, N) whether each rule refers each image."""
    values, _ = referral_uncertainty(part, stated.referral.uncertainty, threshold=cut.value)
    return np.stack([rule.refers(values) for rule in rules])


def _groups(part: Predictions, columns: Sequence[str] | None) -> dict[str, Bools]:
    """Return group -> (N,) rows: the whole set, and the largest subgroups in the order of their columns."""
    members = group_members(part, columns)[0] if part.subgroups else {}
    named = {f"{column}: {value}": rows for column, found in members.items() for value, rows in found.items()}
    largest = sorted(named, key=lambda name: -int(named[name].sum()))[:MOST_GROUPS]
    return {
        "": np.ones(len(part), bool),
        **{name: rows for name, rows in named.items() if name in largest},
    }


def _outcomes(
    part: Predictions, rows: Bools, calls: Bools, sent: Bools, reader: tuple[float, float]
) -> list[list[Outcome]]:
    """Return T rows of R outcomes of some images; calls (T, N), sent (T, R, N)."""
    y = part.label[rows] == 1
    severe = np.zeros(len(y), bool) if part.grade is None else part.grade[rows] >= SEVERE
    codes, _ = cluster_codes((part.image_id if part.patient_id is None else part.patient_id)[rows])
    return [
        [_outcome(y, severe, said[rows], referred[rows], codes, reader) for referred in row]
        for said, row in zip(calls, sent, strict=True)
    ]


def _outcome(
    y: Bools, severe: Bools, said: Bools, sent: Bools, codes: NDArray[np.intp], reader: tuple[float, float]
) -> Outcome:
    called = reading_calls(y, said, sent, reader)["reader"]
    lost = y & ~said & ~sent
    return Outcome(
        sensitivity=clustered_proportion(called, y, codes),
        specificity=clustered_proportion(1 - called, ~y, codes),
        ppv=clustered_proportion(y, called, codes),
        npv=clustered_proportion(~y, 1 - called, codes),
        referred=clustered_proportion(sent, np.ones(len(y)), codes),
        missed=clustered_proportion(lost, y, codes),
        missed_severe=clustered_proportion(lost, severe & y, codes),
        missed_images=int(lost.sum()),
        missed_severe_images=int((lost & severe).sum()),
    )


def _ranked(part: Predictions, calls: Bools, sent: Bools) -> list[RankedImage]:
    grade = np.full(len(part), -1) if part.grade is None else part.grade
    lost = (part.label == 1) & (~calls[:, None] & ~sent).any(axis=(0, 1))
    order = np.lexsort((part.image_id, part.prob, -grade))
    called, first = calls.sum(axis=0), (~sent).sum(axis=1)  # a later rule refers whatever an earlier one does
    return [
        RankedImage(
            str(part.image_id[k]),
            None if part.patient_id is None else str(part.patient_id[k]),
            int(grade[k]) if grade[k] >= 0 else None,
            float(part.prob[k]),
            int(called[k]),
            tuple(first[:, k].tolist()),
        )
        for k in order[lost[order]]
    ]
