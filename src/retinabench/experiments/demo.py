"""The demo: the whole product on drawn retinas, in minutes on two cores."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from retinabench.core.errors import QUIET, Progress
from retinabench.core.subprocesses import cores, in_processes
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.terminal import scores_table
from retinabench.reports.evaluation.write import percent_steps, write_evaluation

IMAGES, SIZE, SEEDS = 3200, 64, 3
# Fewer epochs than the presets, and few passes for validation: the page must come in two minutes.
SHORT = ("optimizer.epochs=8", "optimizer.warmup=1", "optimizer.validation_share=0.1")


def run_demo(out: Path, *, seed: int = 0, workers: int | None = None, progress: Progress = QUIET) -> Path:
    """Draw, train, score and report below `out`, or continue there; print the table and return the page.

    Country Shift in small: MAP with three seeds, MC dropout, and the deep ensemble of the three MAP networks, on the
    in-domain camera and on a camera and population that no network saw.
    """
    began = time.perf_counter()
    recipe = Recipe(SIZE)
    data = prepare(
        "synthetic", out / "data", recipe=recipe, images=IMAGES, seed=seed, workers=workers, progress=progress
    )
    resources = Resources(progress=progress)
    if resources.torch_device().type == "cpu":
        networks = [*(("demo/map", SEEDS * seed + k) for k in range(SEEDS)), ("demo/dropout", seed)]
        together = min(workers or cores(), len(networks))
        with progress.track("Training", len(networks), unit="networks") as advance:
            for _ in in_processes(partial(_train, out), networks, together):
                advance(1)
        resources = Resources()  # every network was named by the bar

    def predictions(preset: str, number: int) -> Predictions:
        folder = execute(_run(preset, number, out), out / "runs", resources)
        return read_predictions(folder / "predictions.parquet")

    files = {
        "MAP": [predictions("demo/map", SEEDS * seed + k) for k in range(SEEDS)],
        "MC dropout": [predictions("demo/dropout", seed)],
    }
    resources = Resources()  # the ensemble only reads its members
    files[f"deep ensemble of {SEEDS}"] = [predictions("demo/ensemble", seed)]
    with progress.track("Scores, intervals and figures", 100, unit="%") as advance:
        tell = percent_steps(advance)
        found = evaluate_methods(files, EvaluationSettings(seed=seed), progress=lambda share: tell(0.9 * share))
        page = write_evaluation(found, out / "report", images=data.image)
        tell(1.0)
    names = [name for name, of_seeds in files.items() for _ in of_seeds]
    scores = [one for of_seeds in found.files for one in of_seeds]
    Console().print(scores_table(names, scores, {name: found.controls(name) for name in found.sets}))
    progress.say(f"done in {time.perf_counter() - began:.0f} s")
    print(page)
    return page


def _run(preset: str, number: int, out: Path) -> Run:
    return load_run(preset, SHORT, data=str(out / "data"), task="country_shift", seed=number)


def _train(out: Path, network: tuple[str, int]) -> None:
    """Train one network with one thread: side by side that is faster than all threads for each, and the same on any number of cores."""
    torch.set_num_threads(1)
    execute(_run(*network, out), out / "runs", Resources("cpu"))
