"""The board: all submissions in some folders, scored and ranked, for each task and over tasks.

For each task and each measure of the competition (`measures.RANKED`) the entries are ranked; a task's rank is the mean
over its measures, the final rank the mean over tasks: of one task it is the competition's light track, of all the
extended one. Intervals come from resampling the test points, the same ones for all entries. Seeds of one entry count
as one: their values are averaged in every replicate. A reference that failed its own diagnostics gives no ranking.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.fidelity.scoring.baselines import baselines
from retinabench.fidelity.scoring.grading import Estimates, Evaluator
from retinabench.fidelity.scoring.measures import MEASURES, RANKED
from retinabench.fidelity.scoring.resampling import ALL, Estimate, average
from retinabench.fidelity.scoring.serialise import entry_record, evaluator_record
from retinabench.fidelity.submissions.submission import EARLIER_FILE, FILE, Submission, read_submission
from retinabench.fidelity.submissions.submission_files import read_meta
from retinabench.fidelity.targets.registry import TARGETS
from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.metrics.inference.over_seeds import aggregate
from retinabench.metrics.inference.ranking import ranks

SCHEMA = "retinabench.fidelity-board/1"


@dataclass(frozen=True, eq=False)
class Line:
    """One entry on one task: its seeds' submissions, and their scores averaged."""

    title: str
    seeds: list[Submission]
    grades: list[Estimates]

    @property
    def mean(self) -> Estimates:
        """{group: {measure: mean over seeds}}."""
        first = self.grades[0]
        return {
            group: {name: average([one[group][name] for one in self.grades]) for name in first[group]}
            for group in first
        }

    @property
    def baseline(self) -> bool:
        """Is it a trivial one, which is shown and not ranked?"""
        return bool(self.seeds[0].meta.get("baseline"))


@dataclass(frozen=True, eq=False)
class Sheet:
    """One task of the board."""

    evaluator: Evaluator
    lines: list[Line]

    @property
    def entries(self) -> list[Line]:
        """The lines that are ranked."""
        return [line for line in self.lines if not line.baseline]


def find_submissions(paths: Sequence[Path]) -> list[Path]:
    """Return the files named, and all submissions below the folders named.

    Raises `InputError` where a path holds none.
    """
    found: list[Path] = []
    for path in paths:
        here = (
            sorted(file for name in (FILE, EARLIER_FILE) for file in path.rglob(name))
            if path.is_dir()
            else [path]
        )
        if not here:
            raise InputError(
                "holds no submission.npz",
                file=path,
                hint="Make some: retinabench fidelity run map --task fundus",
            )
        found += [file for file in here if file not in found]
    return found


def gather(
    files: Sequence[Path],
    evaluators: Mapping[str, Evaluator],
    progress: Progress = QUIET,
) -> list[Sheet]:
    """Read and score submissions, task by task; `evaluators` are given by task."""
    submissions: dict[str, list[Submission]] = {}
    for file in files:
        evaluator = evaluators[task_of(file)]
        one = read_submission(file, evaluator.target, len(evaluator.data.test), evaluator.data.sha256)
        submissions.setdefault(evaluator.target.name, []).append(one)
    sheets = []
    with progress.track("Grading", sum(map(len, submissions.values())), unit="submissions") as advance:
        for task in (name for name in TARGETS if name in submissions):
            sheets.append(graded(evaluators[task], submissions[task]))
            advance(len(submissions[task]))
    return sheets


def graded(evaluator: Evaluator, submissions: Sequence[Submission]) -> Sheet:
    """Score the submissions for one task, and the trivial ones beside them."""
    by_title = _by_title(submissions) | {one.title: [one] for one in trivial(evaluator)}
    lines = [Line(title, seeds, [evaluator.grade(one) for one in seeds]) for title, seeds in by_title.items()]
    return Sheet(evaluator, lines)


def trivial(evaluator: Evaluator) -> list[Submission]:
    """Return the trivial submissions for an evaluator's task."""
    reference = evaluator.reference
    gaussian = evaluator.target.likelihood == "gaussian"
    return baselines(evaluator.target, reference.draws if gaussian else reference.probs)


def task_of(file: Path) -> str:
    """Return the task that a file of ours is for.

    Raises `InputError` where it names none.
    """
    task = read_meta(file).get("task")
    if not isinstance(task, str):
        raise InputError(
            "does not say which task it is for",
            file=file,
            hint="Take it in by: retinabench fidelity score FILE --task T --keep FOLDER",
        )
    return TARGETS.find(task).name


def ranked(sheet: Sheet) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return the ranks of a sheet's entries: mean over measures (E,), its replicates (R, E), and (E,) by measure."""
    points, draws, by_measure = [], [], {}
    for name in RANKED[sheet.evaluator.target.likelihood]:
        estimates: list[Estimate] = [line.mean[ALL][name] for line in sheet.entries]
        higher = MEASURES[name].higher
        by_measure[name] = ranks(np.array([[one.value for one in estimates]]), higher)[0]
        points.append(by_measure[name])
        draws.append(ranks(np.stack([one.draws for one in estimates], axis=1), higher))
    return np.mean(points, axis=0), np.mean(draws, axis=0), by_measure


def board(sheets: Sequence[Sheet]) -> dict[str, Any]:
    """Return the whole board as plain numbers, for JSON and for every table."""
    tasks, places = [], []
    for sheet in sheets:
        record = evaluator_record(sheet.evaluator)
        record["entries"] = [_line_record(sheet, line) for line in sheet.lines]
        if sheet.entries and sheet.evaluator.reference.passed:
            point, draws, by_measure = ranked(sheet)
            places.append(([line.title for line in sheet.entries], point, draws, by_measure))
            mine = [entry for entry in record["entries"] if not entry["baseline"]]
            for k, entry in enumerate(mine):
                entry["rank"] = _place(point[k], draws[:, k])
        tasks.append(record)
    return {"schema": SCHEMA, "tasks": tasks, "ranking": _over_tasks(places)}


def _over_tasks(places: list[tuple[list[str], Any, Any, Any]]) -> list[dict[str, Any]]:
    """Average the ranks of entries with a submission for every ranked task, best first."""
    if not places:
        return []
    everywhere = [title for title in places[0][0] if all(title in titles for titles, *_ in places)]
    rows = []
    for title in everywhere:
        own = [titles.index(title) for titles, *_ in places]
        point = float(np.mean([ranks[k] for k, (_, ranks, *_) in zip(own, places, strict=True)]))
        draws = np.mean([draws[:, k] for k, (_, _, draws, _) in zip(own, places, strict=True)], axis=0)
        measured: dict[str, list[float]] = {}
        for k, (*_, by_measure) in zip(own, places, strict=True):
            for name, of_entries in by_measure.items():
                measured.setdefault(name, []).append(float(of_entries[k]))
        by_name = {name: float(np.mean(some)) for name, some in measured.items()}
        rows.append({"title": title, **_place(point, draws), "by_measure": by_name, "tasks": len(places)})
    return sorted(rows, key=lambda row: row["rank"])


def _place(point: float, draws: NDArray[np.float64]) -> dict[str, Any]:
    if not len(draws):
        return {"rank": float(point), "low": None, "high": None}
    low, high = percentile_interval(draws[:, None])
    return {"rank": float(point), "low": float(low[0]), "high": float(high[0])}


def _line_record(sheet: Sheet, line: Line) -> dict[str, Any]:
    """The grades of the mean over seeds, with standard errors over seeds and the budget of the dearest one."""
    record = entry_record(sheet.evaluator, line.seeds[0], line.mean)
    record["title"] = line.title
    record["seeds"] = [one.meta.get("seed") for one in line.seeds]
    record["source"] = [str(one.source) for one in line.seeds if one.source]
    budgets = [one.meta["budget"] for one in line.seeds if one.meta.get("budget")]
    record["budget"] = max(budgets, key=lambda b: b.get("used", 0)) if budgets else None
    for group, of_group in record["groups"].items():
        for name, one in of_group.items():
            if len(line.seeds) > 1 and one["value"] is not None:
                one["error"] = aggregate([grade[group][name].value for grade in line.grades]).error
    return record


def _by_title(submissions: Sequence[Submission]) -> dict[str, list[Submission]]:
    """Group submissions into entries: seeds of one setting together, settings of one title told apart."""
    settings: dict[tuple[str, str], list[Submission]] = {}
    for one in submissions:
        settings.setdefault((one.title, _setting(one)), []).append(one)
    titles = [title for title, _ in settings]
    return {
        f"{title} ({setting})" if titles.count(title) > 1 else title: seeds
        for (title, setting), seeds in settings.items()
    }


def _setting(submissions: Submission) -> str:
    """Return 6 digits that submissions share when they differ in nothing but the seed; files without a run stand alone."""
    run = submissions.meta.get("run")
    if run is None:
        return str(submissions.source)
    same = {key: value for key, value in run.items() if key != "seed"}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:6]
