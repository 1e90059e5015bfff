"""Trials in the order of a criterion: what a search returns, and the table and the configuration that it writes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.errors import WorkError
from retinabench.experiments.config import Run
from retinabench.experiments.engines.jobs import State
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.space import Space

SCHEMA = "retinabench.ranking/1"
STATES: dict[State, int] = {"done": 0, "diverged": 1, "out_of_memory": 2, "failed": 3}


@dataclass(frozen=True)
class Row:
    """One trial. values: dotted key -> value. value: the criterion's, NaN where it has none; why: then the reason.

    epochs: of its longest training, fewer than the run's where it was stopped early. folder: of that training.
    seconds: of all its trainings, their last attempts. attempts: of the longest.
    """

    trial: int
    values: dict[str, Any]
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
        """Whether the trial was given up before its last epoch."""
        return self.epochs < self.run.optimizer.epochs

    @property
    def ranked(self) -> bool:
        """Whether the trial was trained to the end and has a value."""
        return math.isfinite(self.value) and not self.stopped

    @property
    def note(self) -> str:
        """What is to say of it, empty where all went well."""
        if self.state != "done":
            return f"{self.state.replace('_', ' ')}: {self.why}"
        return f"stopped after {self.epochs} epochs" if self.stopped and not self.why else self.why


@dataclass(frozen=True)
class Ranking:
    """All trials, the best first."""

    criterion: str
    rules: str
    space: Space
    rows: list[Row]

    @property
    def first(self) -> Row:
        """The best trial. Raises `WorkError` where no trial has a value."""
        if not self.rows or not self.rows[0].ranked:
            reason = f" The first of them: {self.rows[0].note}" if self.rows and self.rows[0].note else ""
            raise WorkError(f"none of {len(self.rows)} trials has a value of {self.criterion}.{reason}")
        return self.rows[0]

    @property
    def best(self) -> Run:
        """The best trial's run. Raises `WorkError` where no trial has a value."""
        return self.first.run


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort trials: by value; then those stopped early, the longest trained first; without a value; diverged; failed."""

    def key(row: Row) -> tuple[int, bool, bool, int, float, int]:
        known = math.isfinite(row.value)
        trained = -row.epochs if row.stopped else 0
        return STATES[row.state], not known, row.stopped, trained, -row.value if known else 0.0, row.trial

    return sorted(rows, key=key)


def write_ranking(ranking: Ranking, folder: Path) -> list[Path]:
    """Write `ranking.csv`, `ranking.json` and, where a trial has a value, `best.toml`; return the files."""
    keys = [parameter.key for parameter in ranking.space]
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    columns = ("rank", "trial", "value", "state", "epochs", "seconds", "attempts", "note", "folder")
    writer.writerow([*columns, *keys])
    table = []
    for place, row in enumerate(ranking.rows, start=1):
        folder_name = row.folder.name if row.folder is not None else None
        value = row.value if math.isfinite(row.value) else None
        facts = (
            place,
            row.trial,
            value,
            row.state,
            row.epochs,
            round(row.seconds, 3),
            row.attempts,
            row.note,
        )
        cells = dict(zip(columns, (*facts, folder_name), strict=True))
        writer.writerow([*cells.values(), *(row.values[key] for key in keys)])
        table.append(cells | {"values": row.values})
    content = {
        "schema": SCHEMA,
        "criterion": ranking.criterion,
        "title": CRITERIA[ranking.criterion].title,
        "rules": ranking.rules,
        "space": ranking.space.to_dict(),
        "rows": table,
    }
    files = [folder / "ranking.csv", folder / "ranking.json"]
    write_bytes(files[0], sink.getvalue().encode())
    write_json(files[1], content)
    if ranking.rows and ranking.rows[0].ranked:
        files.append(folder / "best.toml")
        write_bytes(files[-1], _chosen(ranking).encode())
    return files


def _chosen(ranking: Ranking) -> str:
    """The best run as TOML for `train --config`; where its data lie is left to `--data`."""
    best = ranking.first
    tree = best.run.model_dump(mode="json", exclude={"data", "shifted"})
    head = (
        f"# Trial {best.trial}, the best of {len(ranking.rows)} by {ranking.criterion} "
        f"({ranking.rules} rules): {best.value:.6f}.\n"
    )
    return head + to_toml(tree)


def to_toml(tree: Mapping[str, Any], name: str = "") -> str:
    """Write text, numbers and tables of them as TOML; None, which TOML lacks, is left out."""
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
