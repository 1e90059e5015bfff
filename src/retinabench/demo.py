"""The demo: the whole product on drawn retinas, in minutes on two cores."""

from __future__ import annotations

from pathlib import Path

from retinabench.config import load_run
from retinabench.data.prepare import prepare
from retinabench.formats import read_predictions
from retinabench.methods.ensemble import pool
from retinabench.progress import QUIET, Progress
from retinabench.report.page import write_report
from retinabench.report.tables import console_table
from retinabench.run import Engine, execute

IMAGES, SIZE, MEMBERS = 3200, 64, 3


def run_demo(out: Path, *, seed: int = 0, workers: int | None = None, progress: Progress = QUIET) -> Path:
    """Draw, train, score and report below `out`; a killed demo continues. Returns the page.

    Country Shift in small: MAP with three seeds, MC dropout, and the deep ensemble of the three MAP networks, on the
    in-domain camera and on a camera and population that no network saw.
    """
    ...
