"""The trials of a search in the order of a criterion: table, files, figure and the best configuration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from retinabench.core.errors import WorkError
from retinabench.core.files import write_bytes, write_json
from retinabench.experiments.config import Run
from retinabench.experiments.engines.scheduler import State
from retinabench.experiments.many import STATES
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.space import Point, Range, Space
from retinabench.reports.toolkit.figures import BAD, GOOD, canvas, drawing, light_grid, save
from retinabench.reports.toolkit.tables import Cell, Column, Emphasis, NumberFormat, Row, Table, csv_bytes

SCHEMA = "retinabench.ranking/1"
FIGURE = "marginals"
REST = "#b4b3ad"
LEAST = 620  # pixels that title and legend need


@dataclass(frozen=True)
class Trial:
    """One trial: its number, its searched values by dotted key, the run that it trained, and how that ended.

    value: of the criterion, NaN where it has none; why: the reason. seconds and attempts: of the training.
    """

    trial: int
    values: Point
    run: Run
    state: State
    value: float
    why: str
    seconds: float
    attempts: int
    folder: Path | None

    @property
    def ranked(self) -> bool:
        return math.isfinite(self.value)

    @property
    def note(self) -> str:
        """A remark for tables, empty for a finished trial with a value."""
        return self.why if self.state == "done" else f"{self.state.replace('_', ' ')}: {self.why}"


@dataclass(frozen=True)
class TrialRanking:
    """All trials, the best first."""

    criterion: str
    rules: str
    space: Space
    rows: list[Trial]

    @property
    def first(self) -> Trial:
        """The best trial. Raises `WorkError` where no trial has a value."""
        if not self.rows or not self.rows[0].ranked:
            reason = f" The first of them: {self.rows[0].note}" if self.rows and self.rows[0].note else ""
            raise WorkError(f"none of {len(self.rows)} trials has a value of {self.criterion}.{reason}")
        return self.rows[0]


def in_order(rows: Iterable[Trial]) -> list[Trial]:
    """Sort trials: by value; then those without a value; diverged; out of memory; failed."""
    return sorted(
        rows, key=lambda one: (STATES[one.state], not one.ranked, -one.value if one.ranked else 0.0, one.trial)
    )


def ranking_table(ranking: TrialRanking, most: int = 10) -> Table:
    """Return the first `most` trials with a value, the best first; the note counts the others."""
    known = [row for row in ranking.rows if row.ranked]
    columns = [Column("value", direction="higher")]
    columns += [Column(name.replace("_", " ")) for name in short_names(ranking.space)]
    rows = []
    for place, row in enumerate(known[:most]):
        best: Emphasis = "best" if place == 0 else ""
        cells = [Cell.number(row.value, form=NumberFormat(4), emphasis=best)]
        cells += [Cell(_short(row.values[key]), emphasis=best) for key in ranking.space]
        rows.append(Row(str(row.trial), cells))
    title = f"{CRITERIA[ranking.criterion].title} ({ranking.rules})"
    note = _remaining(ranking, len(known) - min(most, len(known)))
    return Table.of(title, columns, rows, row_header="trial", note=note)


def short_names(space: Space) -> list[str]:
    """Return the last word of each key, or the whole key where two end alike."""
    words = [key.rpartition(".")[2] for key in space]
    return [word if words.count(word) == 1 else key for word, key in zip(words, space, strict=True)]


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower().replace("_", " ")


def _remaining(ranking: TrialRanking, more: int) -> str:
    """Count the trials that the table does not show, with the first reason of each kind."""
    parts = [f"{more} more in ranking.csv"] if more else []
    kinds: dict[str, list[Trial]] = {}
    for row in ranking.rows:
        if not row.ranked:
            kinds.setdefault("undefined" if row.state == "done" else row.state, []).append(row)
    for kind, rows in kinds.items():
        parts.append(f"{len(rows)} {kind.replace('_', ' ')} (trial {rows[0].trial}: {rows[0].why})")
    return ". ".join(parts) + "." if parts else ""


def write_ranking(ranking: TrialRanking, folder: Path) -> list[Path]:
    """Write `ranking.csv`, `ranking.json` and, where a trial has a value, `best.toml`; return the files."""
    rows = [
        {
            "rank": place, "trial": row.trial, "value": row.value if row.ranked else None, "state": row.state,
            "epochs": row.run.optimizer.epochs, "seconds": round(row.seconds, 3), "attempts": row.attempts,
            "note": row.note, "folder": row.folder.name if row.folder is not None else None,
        }
        for place, row in enumerate(ranking.rows, start=1)
    ]  # fmt: skip
    content = {
        "schema": SCHEMA, "criterion": ranking.criterion, "title": CRITERIA[ranking.criterion].title, "rules": ranking.rules,
        "space": ranking.space.to_dict(),
        "rows": [cells | {"values": row.values} for cells, row in zip(rows, ranking.rows, strict=True)],
    }  # fmt: skip
    table = ([*one.values(), *row.values.values()] for one, row in zip(rows, ranking.rows, strict=True))
    files = [folder / "ranking.csv", folder / "ranking.json"]
    write_bytes(files[0], csv_bytes([*rows[0], *ranking.space], table))
    write_json(files[1], content)
    if ranking.rows and ranking.rows[0].ranked:
        best, by = ranking.first, f"{ranking.criterion} ({ranking.rules} rules)"
        tree = best.run.model_dump(mode="json", exclude={"data", "shifted"})  # for `train --config`, without paths
        head = f"# Trial {best.trial}, the best of {len(ranking.rows)} by {by}: {best.value:.6f}.\n"
        files.append(folder / "best.toml")
        write_bytes(files[-1], (head + to_toml(tree)).encode())
    return files


def to_toml(tree: Mapping[str, object], name: str = "") -> str:
    """Return text, numbers and tables of them as TOML; None, which TOML lacks, is left out."""
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in tree.items() if key not in tables and value is not None}
    head = f"\n[{name}]\n" if name else ""
    lines = "".join(f"{key} = {_literal(value)}\n" for key, value in plain.items())
    inner = "".join(to_toml(value, f"{name}.{key}" if name else key) for key, value in tables.items())
    return head + lines + inner


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's escapes are those of JSON, but for DEL, which JSON leaves as it is.
        return json.dumps(value).replace("\x7f", "\\u007f")
    return repr(value)


@drawing()
def write_figure(ranking: TrialRanking, folder: Path) -> list[Path]:
    """Draw the criterion over each parameter as SVG and PNG, a panel for each; a cross below the axis is a trial without a value."""
    columns = min(4, len(ranking.space))
    rows = math.ceil(len(ranking.space) / columns)
    figure, grid = canvas(max(LEAST, 70 + 215 * columns), 60 + 205 * rows, rows, columns, text=11)
    panels = [axes for line in grid for axes in line]
    for axes in panels[len(ranking.space) :]:
        axes.axis("off")
    for number, (key, name) in enumerate(zip(ranking.space, short_names(ranking.space), strict=True)):
        axes = panels[number]
        _panel(axes, ranking, key, name)
        if number % columns:
            axes.tick_params(labelleft=False)
    ranked = sum(row.ranked for row in ranking.rows)
    lost = len(ranking.rows) - ranked
    best = f"; best: trial {ranking.first.trial}, {ranking.first.value:.4f}" if ranked else ""
    title = CRITERIA[ranking.criterion].title
    without = f"; {lost} without a value (crosses)" if lost else ""
    figure.suptitle(f"{title} ({ranking.rules}): {ranked} trials{best}{without}", x=0.01, ha="left", fontsize=11)
    return save(figure, folder / FIGURE)


def _panel(axes: Axes, ranking: TrialRanking, key: str, name: str) -> None:
    """Draw one parameter on its own scale; of log_complement 1 - value is drawn."""
    parameter = ranking.space.parameters[key]
    values = [row.value for row in ranking.rows if row.ranked] or [0.0, 1.0]
    low, high = min(values), max(values)
    room = max(0.05 * (high - low), 0.005)
    complement = isinstance(parameter, Range) and parameter.scale == "log_complement"
    for place, row in reversed(list(enumerate(ranking.rows))):  # the best one on top
        value: Any = row.values[key]
        at = value if isinstance(parameter, Range) else str(value)
        x, y = (1 - value if complement else at), (row.value if row.ranked else low - 2 * room)
        color = GOOD if place == 0 and row.ranked else REST if row.ranked else BAD
        axes.plot([x], [y], marker="o" if row.ranked else "x", color=color, ms=8 if color == GOOD else 5)
    if isinstance(parameter, Range) and parameter.scale != "linear":
        axes.set_xscale("log")
        ends = [1 - end if complement else end for end in (parameter.low, parameter.high)]
        if max(ends) < 10 * min(ends):  # ticks within a decade have labels that cover each other
            room_beside = (max(ends) / min(ends)) ** 0.06
            axes.set_xlim(min(ends) / room_beside, max(ends) * room_beside)
            axes.set_xticks(ends, [f"{end:.3g}" for end in ends])
            axes.set_xticks([], minor=True)
    axes.set(ylim=(low - 3 * room, high + room), xlabel=f"1 - {name}" if complement else name)
    light_grid(axes, "y")
