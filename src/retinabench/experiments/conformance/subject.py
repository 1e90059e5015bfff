"""What the checks of a method run on: one run of it, computed once, and the error that says what was seen instead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from retinabench.core.errors import WorkError
from retinabench.experiments.config import Run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

ONE_CPU = Resources("cpu")


class NonconformingError(WorkError):
    """A method does not do what its contract promises; the message says what was seen instead."""


@dataclass(frozen=True)
class Subject:
    """One run of the method under test, and the folder that the checks compute in.

    Runs that several checks need are computed once.
    """

    run: Run
    folder: Path

    @property
    def method(self) -> ModuleType:
        """The module of the method."""
        found: ModuleType = METHODS[self.run.method.name]
        return found

    @property
    def network(self) -> str | None:
        """The function of a user's network; None for other networks."""
        return self.run.model.name if self.run.model.own else None

    @cached_property
    def finished(self) -> Path:
        """The folder of the finished run."""
        return execute(self.run, self.folder / "runs", ONE_CPU)

    @cached_property
    def predictions(self) -> Predictions:
        """What the finished run predicts."""
        return predictions_of(self.finished)


def predictions_of(folder: Path) -> Predictions:
    """Return what a finished run predicts."""
    return read_predictions(folder / "predictions.parquet")


def require(condition: bool, problem: str) -> None:
    """Raise `NonconformingError` with this problem unless the condition holds."""
    if not condition:
        raise NonconformingError(problem)
