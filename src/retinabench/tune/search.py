"""A search: the trials of a space are computed by an engine, measured by a criterion, and ranked."""

from __future__ import annotations

from pathlib import Path

from retinabench.config import Run
from retinabench.progress import QUIET, Progress
from retinabench.tune.jobs import JobEngine
from retinabench.tune.ranking import Ranking
from retinabench.tune.space import Space


def search(
    base: Run,
    space: Space,
    *,
    trials: int = 32,
    criterion: str = "in_domain_auroc",
    rules: str = "corrected",
    out: Path,
    engine: JobEngine,
    seed: int = 0,
    halving: int | None = None,
    progress: Progress = QUIET,
) -> Ranking:
    """Compute trials 0 … trials - 1 below `out`, or what is missing of them; rank them, best first."""
    raise NotImplementedError
