"""The `benchmark` command, and `reproduce`: a study from files as downloaded to the judged claims of Band et al. 2021."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from retinabench.core.errors import QUIET, InputError, Progress, WorkError
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.engines.scheduler import JobEngine
from retinabench.experiments.study.definition import Study, read_study
from retinabench.experiments.study.prediction_files import ResultRow, label_predictions
from retinabench.experiments.study.study import ALLOWED, compute, open_task, workspace
from retinabench.experiments.study.summary import StudySummary, criterion_title, summarise
from retinabench.predictions.io import read_predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings
from retinabench.reports.evaluation.write import percent_steps, write_report
from retinabench.reports.papers.claims import COUNTRY, SEVERITY, JudgedClaim, Models, judge_claims, write_claims
from retinabench.reports.papers.measurements import reduced
from retinabench.reports.papers.write import write_tables

WRITES = ("tables", "pages")


def benchmark(
    study: Study, out: Path, engine: JobEngine, progress: Progress = QUIET, *, writes: Sequence[str] = WRITES
) -> StudySummary:
    """Compute what is missing of a study; write its summary, and of the papers' tables and the pages those in `writes`.

    Below `out`: `study.json`, TASK/METHOD/ (trials, seeds, rankings), `predictions/`, `summary.json`, `summary.md`,
    `tables/`, `report/TASK/CRITERION/`.
    """
    began = time.perf_counter()
    workspace(out).check_empty(allowed=ALLOWED)
    with workspace(out).lock():
        chosen = compute(study, out, engine, progress)
        entries = label_predictions(study, out, chosen)
        summary = summarise(study, out, chosen, entries, progress)
        write_outputs(study, out, entries, progress, writes=writes)
    progress.say(f"done in {time.perf_counter() - began:.0f} s")
    if failed := sorted({f"{e.task}/{e.method}" for e in entries if e.lacking}):
        problem = f"{out}: runs of {', '.join(failed)} failed (see summary.md); all others are done"
        raise WorkError(f"{problem}. The same command tries them again.")
    return summary


def write_outputs(
    study: Study, out: Path, entries: list[ResultRow], progress: Progress = QUIET, *, writes: Sequence[str] = WRITES
) -> None:
    """Write the papers' tables and figures, and one page per task and criterion."""
    files = list(dict.fromkeys(file for entry in entries for file in entry.files))
    if not files:
        return
    settings = EvaluationSettings(study.rules, study.bootstrap, study.seed)
    if "tables" in writes:
        place, seed = out / "tables", study.seed
        write_tables(files, place, rules=study.rules, bootstrap=study.bootstrap, seed=seed, progress=progress)
    for task, criterion in dict.fromkeys((e.task, e.criterion) for e in entries if e.files and "pages" in writes):
        mine = [e for e in entries if (e.task, e.criterion) == (task, criterion) and e.files]
        with progress.track(f"Page of {task}, {criterion}", 100, unit="%") as advance:
            write_report(
                {e.name: [read_predictions(file) for file in dict.fromkeys(e.files)] for e in mine},
                out / "report" / task / criterion, settings, title=f"{study.title}: {task}, {criterion_title(criterion)}",
                images=open_task(study, task, out).data.image, progress=percent_steps(advance),
            )  # fmt: skip


# EyePACS train, Public, Private; APTOS validation and test, by pairs of eyes.
COUNTS = (35_126, 10_906, 42_670, 732, 2_930)
# A pretrained network expects the colours that Graham's takes away.
PREPROCESS: dict[str, Literal["crop", "graham"]] = {"frozen": "crop", "resnet50": "graham"}


def country_study(
    source: Path | None,
    out: Path,
    network: str,
    overrides: Sequence[str] = (),
    *,
    size: int = 512,
    draw: float | None = None,
    progress: Progress = QUIET,
) -> Study:
    """Prepare the data below `out`/data, and return the study on them.

    `source` holds EyePACS and APTOS as downloaded, in the folders `eyepacs` and `aptos`; with `draw` retinas are drawn in their place, that share
    of the published number of images.
    """
    if (source is None) == (draw is None):
        problem = "the images are neither named nor to be drawn" if draw is None else "drawn images have no source"
        hint = "Name the folder that holds eyepacs/ and aptos/ by --source, or --draw a share of their number."
        raise InputError(problem, hint=hint)
    recipe, data, shifted = Recipe(size, PREPROCESS[network]), out / "data", {}
    if source is None:
        eyepacs = data / "drawn"
        counts = [max(32, 2 * round(count * (draw or 0) / 2)) for count in COUNTS]
        prepare("synthetic", eyepacs, recipe=recipe, counts=counts, progress=progress)
    else:
        for name in ("eyepacs", "aptos"):
            prepare(name, data / name, recipe=recipe, source=source / name, progress=progress)
        eyepacs, shifted = data / "eyepacs", {"shifted": str(data / "aptos")}
    tasks = {
        COUNTRY: {"task": "country_shift", "data": str(eyepacs), **shifted},
        SEVERITY: {"task": "severity_shift", "data": str(eyepacs)},
    }
    return read_study(f"reproduce_{network}", overrides, tasks)


def reproduce(
    study: Study, out: Path, engine: JobEngine, progress: Progress = QUIET
) -> tuple[StudySummary, list[JudgedClaim]]:
    """Compute the study with its tables, and judge the paper's claims by the runs of its first criterion."""
    summary = benchmark(study, out, engine, progress, writes=("tables",))
    tasks: dict[str, Models] = {}
    for table in summary.tables:
        if table.criterion == study.choices[0]:
            tasks[table.task] = {
                row.method + (" ensemble" if row.members > 1 else ""): (
                    [reduced(read_predictions(file), exact=False) for file in row.files], row.subsets,
                )
                for row in (one.entry for one in table.entries)
            }  # fmt: skip
    judged = judge_claims(tasks, study.bootstrap, study.seed, progress=progress)
    write_claims(judged, out)
    return summary, judged
