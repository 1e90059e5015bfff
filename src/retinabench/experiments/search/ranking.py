"""The trials of a search in the order of a criterion: as a typed result, a table, files and the best configuration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinabench.core.errors import WorkError
from retinabench.core.files import write_bytes, write_json
from retinabench.experiments.config import Run
from retinabench.experiments.engines.scheduler import State
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.space import Point, Space
from retinabench.reports.toolkit.number_format import NumberFormat
from retinabench.reports.toolkit.tables import Cell, Column, Emphasis, Row, Table, csv_bytes

SCHEMA = "retinabench.ranking/1"
STATES: dict[State, int] = {"done": 0, "diverged": 1, "out_of_memory": 2, "failed": 3}


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        trial: Its number.
        values: The searched values by dotted key.
        run: The run that it trained.
        state: How it ended.
        value: Value of the criterion, NaN where it has none.
        why: Reason of a missing value.
        epochs: Epochs of its longest training, fewer than the run's where it was stopped early.
        seconds: Duration of all its trainings.
        attempts: Attempts of the longest training.
        folder: Folder of the longest training.
    """

    trial: int
    values: Point
    run: Run
    state: State
    value: float
    why: str
    epochs: int
    seconds: float
    attempts: int
    folder: Path | None

    @property
    def stopped(self) -> bool:
        """Whether the trial was stopped before its last epoch."""
        return self.epochs < self.run.optimizer.epochs

    @property
    def ranked(self) -> bool:
        """Whether the trial was trained to the end and has a value."""
        return math.isfinite(self.value) and not self.stopped

    @property
    def note(self) -> str:
        """A remark for tables, empty for a finished trial with a value."""
        if self.state != "done":
            return f"{self.state.replace('_', ' ')}: {self.why}"
        return f"stopped after {self.epochs} epochs" if self.stopped and not self.why else self.why


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

    @property
    def best(self) -> Run:
        """The best trial's run. Raises `WorkError` where no trial has a value."""
        return self.first.run


def in_order(rows: Iterable[Trial]) -> list[Trial]:
    """Sort trials: by value; then those stopped early, the longest trained first; without a value; diverged; failed."""

    def key(row: Trial) -> tuple[int, bool, bool, int, float, int]:
        known = math.isfinite(row.value)
        trained = -row.epochs if row.stopped else 0
        return STATES[row.state], not known, row.stopped, trained, -row.value if known else 0.0, row.trial

    return sorted(rows, key=key)


def ranking_table(ranking: TrialRanking, most: int = 10) -> Table:
    """Return the first `most` trials with a value, the best first; the note counts the others."""
    known = [row for row in ranking.rows if math.isfinite(row.value)]
    keys = [parameter.key for parameter in ranking.space]
    columns = [Column("value", direction="higher")]
    columns += [Column(name.replace("_", " ")) for name in short_names(ranking.space)]
    rows = []
    for place, row in enumerate(known[:most]):
        best: Emphasis = "best" if place == 0 and row.ranked else ""
        cells = [Cell.number(row.value, form=NumberFormat(4), emphasis=best)]
        cells += [Cell(_short(row.values[key]), emphasis=best) for key in keys]
        rows.append(Row(str(row.trial), cells, control=row.stopped))
    title = f"{CRITERIA[ranking.criterion].title} ({ranking.rules})"
    note = _remaining(ranking, len(known) - min(most, len(known)))
    return Table.of(title, columns, rows, row_header="trial", note=note)


def short_names(space: Space) -> list[str]:
    """Return the last word of each key, or the whole key where two end alike."""
    words = [parameter.key.rpartition(".")[2] for parameter in space]
    return [w if words.count(w) == 1 else p.key for w, p in zip(words, space, strict=True)]


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower().replace("_", " ")


def _remaining(ranking: TrialRanking, more: int) -> str:
    """Count the trials that the table does not show, with the first reason of each kind."""
    parts = [f"{more} more in ranking.csv"] if more else []
    stopped = sum(row.stopped and math.isfinite(row.value) for row in ranking.rows)
    if stopped:
        parts.append(f"{stopped} stopped early (dim)")
    kinds: dict[str, list[Trial]] = {}
    for row in ranking.rows:
        if not math.isfinite(row.value):
            kinds.setdefault("undefined" if row.state == "done" else row.state, []).append(row)
    for kind, rows in kinds.items():
        parts.append(f"{len(rows)} {kind.replace('_', ' ')} (trial {rows[0].trial}: {rows[0].why})")
    return ". ".join(parts) + "." if parts else ""


def write_ranking(ranking: TrialRanking, folder: Path) -> list[Path]:
    """Write `ranking.csv`, `ranking.json` and, where a trial has a value, `best.toml`; return the files."""
    keys = [parameter.key for parameter in ranking.space]
    rows = []
    for place, row in enumerate(ranking.rows, start=1):
        rows.append(
            {
                "rank": place,
                "trial": row.trial,
                "value": row.value if math.isfinite(row.value) else None,
                "state": row.state,
                "epochs": row.epochs,
                "seconds": round(row.seconds, 3),
                "attempts": row.attempts,
                "note": row.note,
                "folder": row.folder.name if row.folder is not None else None,
            }
        )
    columns = ("rank", "trial", "value", "state", "epochs", "seconds", "attempts", "note", "folder")
    table = (
        [*cells.values(), *(row.values[key] for key in keys)]
        for cells, row in zip(rows, ranking.rows, strict=True)
    )
    content = {
        "schema": SCHEMA,
        "criterion": ranking.criterion,
        "title": CRITERIA[ranking.criterion].title,
        "rules": ranking.rules,
        "space": ranking.space.to_dict(),
        "rows": [cells | {"values": row.values} for cells, row in zip(rows, ranking.rows, strict=True)],
    }
    files = [folder / "ranking.csv", folder / "ranking.json"]
    write_bytes(files[0], csv_bytes([*columns, *keys], table))
    write_json(files[1], content)
    if ranking.rows and ranking.rows[0].ranked:
        files.append(folder / "best.toml")
        write_bytes(files[-1], _chosen(ranking).encode())
    return files


def _chosen(ranking: TrialRanking) -> str:
    """Return the best run as TOML for `train --config`, without the paths of its data."""
    best = ranking.first
    tree = best.run.model_dump(mode="json", exclude={"data", "shifted"})
    head = (
        f"# Trial {best.trial}, the best of {len(ranking.rows)} by {ranking.criterion} "
        f"({ranking.rules} rules): {best.value:.6f}.\n"
    )
    return head + to_toml(tree)


def to_toml(tree: Mapping[str, object], name: str = "") -> str:
    """Return text, numbers and tables of them as TOML; None, which TOML lacks, is left out."""
    plain = {
        key: value for key, value in tree.items() if value is not None and not isinstance(value, Mapping)
    }
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
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
