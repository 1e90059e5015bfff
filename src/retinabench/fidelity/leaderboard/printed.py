"""Rows of numbers that others printed, beside those that are computed here (`printed.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from retinabench.core.results import JsonObject
from retinabench.fidelity.leaderboard.results import TaskBoard
from retinabench.fidelity.leaderboard.scores import Score
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.scoring.measures import MEASURES
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.reports.toolkit.number_format import Quantity
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table


@dataclass(frozen=True)
class PrintedRow:
    """A row of a table that was printed elsewhere.

    Args:
        title: Whose, and that it was printed.
        scores: By measure, with the standard deviation that was printed as error.
    """

    title: str
    scores: dict[str, Score]


def printed_rows(evaluator: Evaluator, group: str = ALL) -> list[PrintedRow]:
    """Return the printed rows of a task's group, and the ceiling that an imported reference was published with."""
    task, found = evaluator.target.name, []
    ceiling = evaluator.reference.about.published_ceiling
    if ceiling is not None and group == ALL:
        scores = {name: _score([value]) for name, value in ceiling.items() if name in MEASURES}
        found.append(PrintedRow("published ceiling", scores))
    only = len(evaluator.resampling.groups) == 2  # all points, and one group that is the same
    for row in _tables()["row"]:
        if row["task"] == task and (row.get("group", ALL) == group or (only and "group" not in row)):
            scores = {name: _score(value) for name, value in row.items() if name in MEASURES}
            found.append(PrintedRow(row["title"], scores))
    return found


def final_ranking(tasks: Sequence[TaskBoard]) -> Table | None:
    """Return the final ranking of 2021 as printed, where a task of the competition is on the board."""
    if not any(task.target.points for task in tasks):
        return None
    rows = [Row(one["team"], [Cell(one["light"]), Cell(one["extended"])]) for one in _tables()["final"]]
    note = "As printed in Wilson et al. 2022; the scores of the teams, an image there, are not known here."
    columns = [Column("light track"), Column("extended track")]
    return Table.of("Final ranking of the competition of 2021 (printed)", columns, rows, note=note)


def _score(value: Sequence[float]) -> Score:
    """Return a printed value, with its error where one was printed."""
    return Score(Quantity(value[0], np.nan, np.nan, value[1] if len(value) > 1 else np.nan))


@cache
def _tables() -> JsonObject:
    file = resources.files("retinabench.fidelity.leaderboard").joinpath("printed.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
