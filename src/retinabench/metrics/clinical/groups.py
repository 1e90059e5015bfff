"""The groups of images that the further columns of a file make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.predictions.table import Predictions

Bools = NDArray[np.bool_]
MOST_GROUPS = 20
"""A text column with more values than this is no subgroup."""
AGES = (40.0, 50.0, 60.0, 70.0)
QUARTILES_ABOVE = 8
"""A numeric column with more values than this is cut at its quartiles."""
UNKNOWN = "not known"
NOT_GROUPS = ("gradable",)
"""Columns that another part of the report reads."""


def group_members(
    part: Predictions, columns: Sequence[str] | None = None
) -> tuple[dict[str, dict[str, Bools]], dict[str, str], dict[str, str]]:
    """Return which images are in which group.

    Shapes: returns (N,).
    """
    for name in columns or ():
        if name not in part.subgroups:
            raise InputError(
                f"has no column '{name}'",
                file=part.source,
                hint=nearest(name, part.subgroups) if part.subgroups else "The file has no further columns.",
            )
    members: dict[str, dict[str, Bools]] = {}
    skipped: dict[str, str] = {}
    bins: dict[str, str] = {}
    for name in part.subgroups if columns is None else dict.fromkeys(columns):
        if columns is None and name in NOT_GROUPS:
            continue
        found, why, cut = _groups(name, part.subgroups[name], named=columns is not None)
        if found is None:
            skipped[name] = why
            if columns is not None:
                raise InputError(f"makes no groups: {why}", file=part.source, column=name)
            continue
        members[name] = found
        if cut:
            bins[name] = cut
    return members, skipped, bins


def _groups(name: str, values: NDArray[Any], *, named: bool) -> tuple[dict[str, Bools] | None, str, str]:
    """Return the rows of each group, or None with the reason, and the limits at which numbers were cut."""
    if values.dtype.kind == "f":
        return _numeric_groups(name, values)
    text = np.where(values == "", UNKNOWN, values)
    levels, counts = np.unique(text, return_counts=True)
    if len(levels) == 1:
        return None, "it has one value", ""
    if not named and all(re.match(r"\d{4}-\d\d-\d\d", level) for level in levels if level != UNKNOWN):
        return None, "it holds dates, which “retinabench monitor” reads", ""
    if len(levels) > MOST_GROUPS:
        kind = "almost every image has its own" if counts.max() <= 2 else f"it has {len(levels):,} values"
        return None, f"{kind}, more than {MOST_GROUPS}", ""
    return {str(level): text == level for level in levels}, "", ""


def _numeric_groups(name: str, values: NDArray[np.float64]) -> tuple[dict[str, Bools] | None, str, str]:
    known = values[np.isfinite(values)]
    levels = np.unique(known)
    missing = {UNKNOWN: ~np.isfinite(values)} if len(known) < len(values) else {}
    if len(levels) < 2:
        return None, "it has one value", ""
    if len(levels) <= QUARTILES_ABOVE:
        return {f"{level:g}": values == level for level in levels} | missing, "", ""
    whole = bool((known == np.round(known)).all())
    if (
        whole
        and len(levels) > 0.9 * len(known)
        and len(known) > 100
        and re.search(r"(?i)id$|number|index", name)
    ):
        return None, "almost every image has its own number", ""
    if re.fullmatch(r"(?i)(patient_?)?age(_?years)?", name):
        edges, cut = np.array(AGES), "by decades: below 40, 40 to 49, 50 to 59, 60 to 69, 70 and above"
    else:
        edges, cut = np.unique(np.quantile(known, (0.25, 0.5, 0.75))), "at its quartiles"
    number = np.searchsorted(edges, values, side="right")
    labels = [
        f"below {edges[0]:g}",
        *(f"{a:g} to below {b:g}" for a, b in pairwise(edges)),
    ]
    labels.append(f"{edges[-1]:g} and above")
    held = np.isfinite(values)
    rows = {label: held & (number == k) for k, label in enumerate(labels)}
    return {label: chosen for label, chosen in rows.items() if chosen.any()} | missing, "", cut
