"""Referral policies on a grid of thresholds.

These numbers are for exploration. A pair of thresholds that is chosen because of them is chosen on the scored images, and
needs images of its own to be judged on, or a guarantee (`metrics/guarantees`).

`policies.json` of `report` has `schema` (``retinabench.policies/1``), `reader`, and `entries`, per method its name (`entry`) and what `clinic`
writes into its own: `thresholds` (T), `referrals` (R rules), `frozen` (the places of the stated pair), and `sets`: set -> subgroup (``""`` is
the whole set) -> T rows of R outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics.arrays import Bools, Floats
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.clinical.decision_curve import SEVERE
from retinabench.metrics.clinical.groups import group_members
from retinabench.metrics.clinical.screening import Screened
from retinabench.metrics.clinical.screening_table import rate_shares, reading_calls, referral_shares, share_intervals
from retinabench.metrics.decisions import FrozenThreshold, ReferralRule, referral_rules, referral_uncertainty
from retinabench.metrics.proportions import Interval, patient_starts, shares_with_ends
from retinabench.metrics.weighted_images import is_positive
from retinabench.predictions.table import Predictions

THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # about evenly on the scale of the odds
RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
MOST_GROUPS = 24
SHOWN = ("sensitivity", "specificity", "ppv", "npv", "referred", "missed", "missed_severe")
"""Shares of an outcome, see `clinical.screening_table`."""

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
    """The outcomes of all pairs of thresholds."""

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
    rates = [rate for rate in RATES if rate != (0.0 if frozen.extent == "none" else frozen.rate)]
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
    grade = np.full(len(part), -1) if part.grade is None else part.grade
    lost = (part.label == 1) & (~calls[:, None] & ~sent).any(axis=(0, 1))
    order, of = np.lexsort((part.image_id, part.prob, -grade)), np.stack(groups)
    called, first = calls.sum(axis=0), (~sent).sum(axis=1)  # a later rule refers whatever an earlier one does
    return [
        RankedImage(
            str(part.image_id[k]),
            None if part.patient_id is None else str(part.patient_id[k]),
            int(grade[k]) if grade[k] >= 0 else None,
            float(part.prob[k]),
            int(called[k]),
            tuple(first[:, k].tolist()),
            tuple(np.flatnonzero(of[:, k]).tolist()),
        )
        for k in order[lost[order]]
    ]
