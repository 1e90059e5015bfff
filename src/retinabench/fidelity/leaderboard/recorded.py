"""The recorded standing: what all entries scored once, so that a lone new entry is not first of one.

`recorded.toml` holds values, not submissions: the rank of an entry among them comes from values alone and has no interval.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from retinabench.fidelity.leaderboard.results import TaskBoard
from retinabench.fidelity.scoring.measures import MEASURES
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.metrics.comparison.ranking import ranks
from retinabench.reports.toolkit.number_format import TWO_DIGITS
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

FILE = Path(__file__).parent / "recorded.toml"
Values = Mapping[str, tuple[float, float]]
"""Measure -> mean over seeds and its standard error."""


@dataclass(frozen=True)
class RecordedStanding:
    """What entries scored on a task within one tier of the budget.

    Attributes:
        date: When they were scored.
        seeds: How many seeds the entries have, in words.
        entries: Title -> values.
    """

    date: str
    seeds: str
    entries: Mapping[str, Values]


@cache
def recorded(task: str, tier: int | None) -> RecordedStanding | None:
    """Return the recorded standing of a task.

    Args:
        task: Name of the target.
        tier: The most gradient evaluations per training example.

    Returns:
        The standing; None where none is recorded.
    """
    content = tomllib.loads(FILE.read_text("utf-8")).get(task, {}).get(str(tier))
    if content is None:
        return None
    entries = {
        title: {one["measure"]: (one["value"], one["error"]) for one in cells}
        for title, cells in content["entries"].items()
    }
    return RecordedStanding(str(content["date"]), str(content["seeds"]), entries)


def recorded_table(task: TaskBoard) -> Table | None:
    """Return the entries of a task among the recorded ones, the best first; None where none are, or submissions are shipped."""
    standing = recorded(task.target.name, task.division.tier if task.division else None)
    names = task.ranked_measures
    if standing is None or not task.competitors or any(entry.shipped for entry in task.competitors):
        return None
    known = standing.entries
    ours = {
        entry.title: {name: entry.scores[ALL][name].quantity for name in names} for entry in task.competitors
    }
    values = [[of[name].value for name in names] for of in ours.values()]
    values += [[of[name][0] for name in names] for of in known.values()]
    table = np.array(values)
    placed = np.mean(
        [ranks(table[None, :, k], MEASURES[name].higher)[0] for k, name in enumerate(names)], axis=0
    )
    rows = []
    for title, quantities in ours.items():
        cells = [Cell.number(one.value, error=one.error) for one in quantities.values()]
        rows.append(Row(f"{title} (here)", cells))
    for title, of in known.items():
        rows.append(Row(title, [Cell.number(of[name][0], error=of[name][1]) for name in names], control=True))
    ordered = [
        Row(rows[k].label, [Cell.number(float(placed[k]), form=TWO_DIGITS), *rows[k].cells], rows[k].control)
        for k in np.argsort(placed, kind="stable")
    ]
    columns = [
        Column("rank"),
        *(Column(MEASURES[n].label, direction="higher" if MEASURES[n].higher else "lower") for n in names),
    ]
    note = (
        f"Recorded on {standing.date} against the shipped reference, {standing.seeds}, ± the standard error over seeds. Their "
        "submissions are not in the package: these ranks come from values alone, without intervals."
    )
    return Table.of(f"{task.target.title}: among the recorded entries", columns, ordered, note=note)
