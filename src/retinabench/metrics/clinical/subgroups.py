"""For whom a model fails: rates by camera, site, age, sex, quality and every other column of the file.

The worst group is found by looking at all of them, so that its interval must hold for all of them at once. The intervals of
the groups are therefore given at two levels: 95 % each, and simultaneously by Bonferroni's inequality, each at
1 - 0.05 / K for K groups of all columns. Bonferroni needs nothing of the groups: those of two columns share their images, and a
patient may be in two groups. A bootstrap of the largest deviation would be narrower, but its replicates of a group without an
error have no width, which is the group that matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.core.results import JsonObject, json_content
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.clinical.groups import group_members
from retinabench.metrics.intervals import auroc_error
from retinabench.metrics.proportions import Interval, clustered_proportion, difference_of
from retinabench.predictions.table import Predictions

Bools = NDArray[np.bool_]
FEWEST_PATIENTS = 10
"""Patients of the class that a rate is about, below which nothing is said."""
WIDEST = 0.3
"""Width of a 95 % interval above which nothing is said."""
RATES = ("sensitivity", "specificity", "auroc")


@dataclass(frozen=True)
class GroupRate:
    """A rate of a group."""

    alone: Interval
    together: Interval
    gap: Interval
    too_small: str = ""

    def to_dict(self) -> JsonObject:
        """Return the part of the JSON."""
        return {
            **self.alone.to_dict(),
            "simultaneous": json_content((self.together.low, self.together.high)),
            "minus_others": self.gap.to_dict(),
            "too_small": self.too_small or None,
        }


@dataclass(frozen=True)
class Subgroup:
    """A group of images: the value `value` of the column `column`; all rates are per image."""

    column: str
    value: str
    images: int
    patients: int
    positives: int
    rates: Mapping[str, GroupRate]
    referral: Interval
    calibration: Interval

    @property
    def name(self) -> str:
        """Column and value."""
        return f"{self.column}: {self.value}"

    def to_dict(self) -> JsonObject:
        """Return the part of the JSON."""
        return {
            "column": self.column, "value": self.value, "images": self.images, "patients": self.patients,
            "positives": self.positives, **{name: rate.to_dict() for name, rate in self.rates.items()},
            "referral_rate": self.referral.to_dict(), "observed_minus_predicted": self.calibration.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class Subgroups:
    """The groups of all columns."""

    groups: tuple[Subgroup, ...]
    skipped: Mapping[str, str]
    bins: Mapping[str, str]
    level: float

    @property
    def columns(self) -> list[str]:
        """The columns with groups."""
        return list(dict.fromkeys(one.column for one in self.groups))

    def of(self, column: str) -> list[Subgroup]:
        """Return the groups of a column."""
        return [one for one in self.groups if one.column == column]

    def worst(self, rate: str) -> Subgroup | None:
        """Return the group of the lowest rate among those that are not too small, None where there is none."""
        known = [one for one in self.groups if not one.rates[rate].too_small]
        return min(known, key=lambda one: one.rates[rate].alone.value) if known else None

    def failing(self, rate: str) -> list[Subgroup]:
        """Return the groups whose rate lies below that of all other images, by the simultaneous interval."""
        return [one for one in self.groups if not one.rates[rate].too_small and one.rates[rate].gap.high < 0]

    def to_dict(self) -> JsonObject:
        """Return the part of the JSON."""
        worst = {rate: found.name for rate in RATES if (found := self.worst(rate)) is not None}
        return {
            "groups": json_content(self.groups),
            "worst": worst,
            "worse_than_others": {rate: [one.name for one in self.failing(rate)] for rate in RATES},
            "skipped": dict(self.skipped),
            "bins": dict(self.bins),
            "simultaneous_level": self.level,
        }


def subgroups_of(
    part: Predictions, positive: Bools, referred: Bools, columns: Sequence[str] | None = None
) -> Subgroups:
    """Return the rates of every group.

    Shapes: `positive` (N,), `referred` (N,).
    """
    members, skipped, bins = group_members(part, columns)
    number = sum(len(found) for found in members.values())
    level = 1 - 0.05 / max(number, 1)
    codes, _ = cluster_codes(part.image_id if part.patient_id is None else part.patient_id)
    groups = tuple(
        _group(part, positive, referred, codes, (name, value), rows, level)
        for name, found in members.items()
        for value, rows in found.items()
    )
    return Subgroups(groups, skipped, bins, level)


def _group(
    part: Predictions,
    positive: Bools,
    referred: Bools,
    codes: NDArray[np.intp],
    name: tuple[str, str],
    rows: Bools,
    level: float,
) -> Subgroup:
    y, p = part.label == 1, part.prob
    rates = {}
    for rate, right, of in (("sensitivity", positive, y), ("specificity", ~positive, ~y)):
        alone = clustered_proportion(right, of & rows, codes)
        together, others = (
            clustered_proportion(right, of & chosen, codes, level, exact=True) for chosen in (rows, ~rows)
        )
        gap = difference_of(together, others)
        why = "" if gap.high < 0 else _too_small(alone, {rate: len(np.unique(codes[of & rows]))})
        rates[rate] = GroupRate(alone, together, gap, why)
    inside, outside = (auroc_error(y[k], p[k], codes[k]) if k.any() else None for k in (rows, ~rows))
    assert inside is not None
    alone = Interval(inside.auroc, *inside.interval())
    together = Interval(inside.auroc, *inside.interval(level))
    gap = Interval(np.nan)
    if outside is not None:
        gap = difference_of(together, Interval(outside.auroc, *outside.interval(level)))
    classes = {"referable": len(np.unique(codes[y & rows])), "healthy": len(np.unique(codes[~y & rows]))}
    rates["auroc"] = GroupRate(alone, together, gap, _too_small(alone, classes))
    return Subgroup(
        *name,
        int(rows.sum()),
        len(np.unique(codes[rows])),
        int((y & rows).sum()),
        rates,
        clustered_proportion(referred, rows, codes),
        mean_residual(y[rows], p[rows], codes[rows]),
    )


def mean_residual(label: Bools, prob: NDArray[np.float64], codes: NDArray[np.intp]) -> Interval:
    """Return the mean of label - prob: observed minus predicted disease, with its clustered t interval.

    Shapes: `label` (N,), `prob` (N,), `codes` (N,).
    """
    residual = label - prob
    mean = float(residual.mean())
    of_patient = np.bincount(np.unique(codes, return_inverse=True)[1], residual - mean)
    patients = len(of_patient)
    if patients < 2 or not 0 < label.mean() < 1:
        return Interval(mean)
    error = float(np.sqrt(patients / (patients - 1) * of_patient @ of_patient)) / len(residual)
    half = float(stats.t.ppf(0.975, patients - 1)) * error
    return Interval(mean, mean - half, mean + half)


def _too_small(found: Interval, patients: Mapping[str, int]) -> str:
    for name, count in patients.items():
        if count < FEWEST_PATIENTS:
            kind = {"sensitivity": "referable", "specificity": "healthy"}.get(name, name)
            return f"{count} patients with a {kind} image, fewer than {FEWEST_PATIENTS}"
    if not np.isfinite(found.high - found.low):
        return "it has no interval"
    if found.high - found.low > WIDEST:
        return f"its interval is wider than {WIDEST:g}"
    return ""
