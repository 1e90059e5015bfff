"""Trials in the order of a criterion: what a search returns, and the files that say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinabench.config import Run
from retinabench.errors import WorkError
from retinabench.tune.jobs import State


@dataclass(frozen=True)
class Row:
    """One trial. values: dotted key -> value. value: the criterion's, NaN where undefined; why: then the reason.

    epochs: of its longest training, below the run's own where it was stopped early. folder: of that run.
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


@dataclass(frozen=True)
class Ranking:
    """All trials, the best first."""

    criterion: str
    rules: str
    rows: list[Row]

    @property
    def best(self) -> Run:
        """The best trial's run. Raises `WorkError` where no trial has a value."""
        raise WorkError("no trial has a value")
