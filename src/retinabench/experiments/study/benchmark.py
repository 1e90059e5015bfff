"""The `benchmark` command: compute a study, then write its summary, tables and pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from retinabench.core.errors import QUIET, Progress, WorkError
from retinabench.experiments.engines.scheduler import JobEngine
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.prediction_files import ResultRow, label_predictions
from retinabench.experiments.study.study import ALLOWED, compute, open_task, workspace
from retinabench.experiments.study.summary import StudySummary, criterion_title, summarise
from retinabench.predictions.io import read_predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings
from retinabench.reports.evaluation.write import percent_steps, write_report
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
    failed = sorted({f"{e.task}/{e.method}" for e in entries if e.lacking})
    if failed:
        raise WorkError(
            f"{out}: runs of {', '.join(failed)} failed (see summary.md); all others are done. "
            "The same command tries them again."
        )
    return summary


def write_outputs(
    study: Study, out: Path, entries: list[ResultRow], progress: Progress = QUIET, *, writes: Sequence[str] = WRITES
) -> None:
    """Write the papers' tables and figures, and one page per task and criterion."""
    files = list(dict.fromkeys(file for entry in entries for file in entry.files))
    if not files:
        return
    if "tables" in writes:
        write_tables(
            files, out / "tables", rules=study.rules, bootstrap=study.bootstrap, seed=study.seed, progress=progress
        )
    for task, criterion in dict.fromkeys((entry.task, entry.criterion) for entry in entries if "pages" in writes):
        mine = [e for e in entries if (e.task, e.criterion) == (task, criterion) and e.files]
        if not mine:
            continue
        prepared = open_task(study, task, out).data
        with progress.track(f"Page of {task}, {criterion}", 100, unit="%") as advance:
            write_report(
                {e.name: [read_predictions(file) for file in dict.fromkeys(e.files)] for e in mine},
                out / "report" / task / criterion,
                EvaluationSettings(study.rules, study.bootstrap, study.seed),
                title=f"{study.title}: {task}, {criterion_title(criterion)}",
                images=prepared.image,
                progress=percent_steps(advance),
            )
