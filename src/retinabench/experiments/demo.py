"""The demo: the whole product on drawn retinas, in minutes on two cores."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.console import Console

from retinabench.core.progress import QUIET, Progress
from retinabench.data.ingest.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.terminal import scores_table
from retinabench.reports.evaluation.write import percent_steps, write_report

IMAGES, SIZE, SEEDS = 3200, 64, 3
TITLE = "Does the model know when it does not know?"


def run_demo(
    out: Path, *, seed: int = 0, images: int = IMAGES, workers: int | None = None, progress: Progress = QUIET
) -> Path:
    """Draw, train, score and report below `out`, or continue there; print the table and return the page.

    Country Shift in small: MAP with three seeds, MC dropout, and the deep ensemble of the three MAP networks, on the
    in-domain camera and on a camera and population that no network saw.
    """
    began = time.perf_counter()
    data = prepare(
        "synthetic",
        out / "data",
        recipe=Recipe(SIZE),
        images=images,
        seed=seed,
        workers=workers,
        progress=progress,
    )

    def predictions(preset: str, number: int) -> Predictions:
        run = load_run(preset, data=str(out / "data"), task="country_shift", seed=number)
        return read_predictions(
            execute(run, out / "runs", Resources(progress=progress)) / "predictions.parquet"
        )

    entries = {
        "MAP": [predictions("demo/map", SEEDS * seed + k) for k in range(SEEDS)],
        "MC dropout": [predictions("demo/dropout", seed)],
        f"deep ensemble of {SEEDS}": [predictions("demo/ensemble", seed)],
    }
    with progress.track("Scores, intervals and figures", 100, unit="%") as advance:
        page = write_report(
            entries,
            out / "report",
            title=TITLE,
            images=data.image,
            seed=seed,
            progress=percent_steps(advance),
        )
    Console().print(scores_table(json.loads((out / "report" / "scores.json").read_text())))
    progress.say(f"done in {time.perf_counter() - began:.0f} s")
    print(page)
    return page
