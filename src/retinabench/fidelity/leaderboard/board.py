"""The board: entries scored and ranked, for each task and over tasks.

For each task the entries are ranked by each measure of the competition (`measures.RANKED`). The rank of a task is the mean
over its measures, the final rank the mean over tasks; with one task this is the competition's light track, with all its
extended track. Intervals come from resampling the test points, the same ones for all entries. Seeds of one entry count
as one: their values are averaged in every replicate. A reference that fails its own diagnostics gives no ranking.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from retinabench.core.untrusted.paths import told_apart
from retinabench.fidelity.leaderboard.results import (
    Board,
    Division,
    Entry,
    Rank,
    RankedEntry,
    Score,
    TaskBoard,
)
from retinabench.fidelity.scoring.baselines import baselines
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.scoring.measures import MEASURES
from retinabench.fidelity.scoring.nearness import nearness
from retinabench.fidelity.scoring.resampling import ALL, average
from retinabench.fidelity.submissions.submission import Submission
from retinabench.fidelity.targets.target import Target
from retinabench.metrics.comparison.ranking import ranks
from retinabench.metrics.inference.over_seeds import aggregate

REGRESSION = ("wasserstein", "w2", "w2_kit", "w2_as_printed", "rmse", "crps", "coverage_90")
_NEEDS_DECISION = ("regret", "referral_area")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _TaskRanks:
    """Ranks of a task's entries: mean over measures (E,), its replicates (R, E), and (E,) by measure."""

    titles: list[str]
    mean: Floats
    replicates: Floats
    by_measure: dict[str, Floats]


def score_divisions(evaluator: Evaluator, submissions: Sequence[Submission]) -> list[TaskBoard]:
    """Score the submissions for one task, and rank those of each track and tier of the budget among themselves."""
    divisions: dict[Division, list[Submission]] = {}
    for one in submissions:
        divisions.setdefault(Division.of(one, evaluator.target), []).append(one)
    ordered = sorted(divisions, key=lambda division: division.key)
    return [score_task(evaluator, divisions[division], division) for division in ordered]


def score_task(
    evaluator: Evaluator, submissions: Sequence[Submission], division: Division | None = None
) -> TaskBoard:
    """Score and rank submissions for one task, with the trivial ones beside them.

    Args:
        evaluator: The task with its data and reference.
        submissions: The submissions, of one division.
        division: Their track and tier; None to rank them together whatever theirs are.

    Returns:
        The board of the division.
    """
    reference = evaluator.reference
    gaussian = evaluator.target.likelihood == "gaussian"
    trivial = baselines(evaluator.target, reference.draws if gaussian else reference.probs)
    by_title = _by_title(submissions) | {one.title: [one] for one in trivial}
    entries = [_entry(evaluator, title, seeds) for title, seeds in by_title.items()]
    board = TaskBoard(evaluator, entries, division)
    if (found := _ranks(board)) is None:
        return board
    ranks_of = {title: Rank.of(found.mean[k], found.replicates[:, k]) for k, title in enumerate(found.titles)}
    ranked = [replace(entry, rank=ranks_of.get(entry.title)) for entry in entries]
    return TaskBoard(evaluator, ranked, division)


def make_board(tasks: Sequence[TaskBoard]) -> Board:
    """Rank the entries of each division over tasks, those with a submission for every task that the division ranks."""
    divisions = sorted({task.division or Division() for task in tasks}, key=lambda division: division.key)
    rows = [row for division in divisions for row in _over_tasks(tasks, division)]
    return Board(list(tasks), rows)


def _over_tasks(tasks: Sequence[TaskBoard], division: Division) -> list[RankedEntry]:
    """Return the entries of a division by their mean rank over its tasks."""
    own = [task for task in tasks if (task.division or Division()) == division]
    found = [ranked for task in own if (ranked := _ranks(task)) is not None]
    rows: list[RankedEntry] = []
    if not found:
        return rows
    for title in found[0].titles:
        if any(title not in of_task.titles for of_task in found):
            continue
        places = [(of_task, of_task.titles.index(title)) for of_task in found]
        replicates = np.mean([of_task.replicates[:, k] for of_task, k in places], axis=0)
        rank = Rank.of(float(np.mean([of_task.mean[k] for of_task, k in places])), replicates)
        measured: dict[str, list[float]] = {}
        for of_task, k in places:
            for name, of_entries in of_task.by_measure.items():
                measured.setdefault(name, []).append(float(of_entries[k]))
        by_measure = {name: float(np.mean(values)) for name, values in measured.items()}
        rows.append(RankedEntry(title, rank, by_measure, len(found), division))
    return sorted(rows, key=lambda row: row.rank.quantity.value)


def measures_of(target: Target) -> list[str]:
    """Return the measures of a task, the decision measures only where it has a decision."""
    if target.likelihood == "gaussian":
        return list(REGRESSION)
    return [
        name
        for name in MEASURES
        if name not in REGRESSION and (target.decision or name not in _NEEDS_DECISION)
    ]


def _entry(evaluator: Evaluator, title: str, submissions: list[Submission]) -> Entry:
    estimates = [evaluator.grade(one) for one in submissions]
    mean = {
        group: {name: average([one[group][name] for one in estimates]) for name in of_group}
        for group, of_group in estimates[0].items()
    }
    relative = evaluator.relative(mean)
    scores: dict[str, dict[str, Score]] = {}
    for group, of_group in mean.items():
        scores[group] = {}
        for name in measures_of(evaluator.target):
            error = np.nan
            if len(submissions) > 1 and name in of_group:
                error = aggregate([one[group][name].value for one in estimates]).error
            scores[group][name] = Score.of(name, of_group.get(name), relative[group].get(name), error)
    found = (
        [] if submissions[0].about.baseline else [nearness(one, evaluator.reference) for one in submissions]
    )
    return Entry(title, submissions, estimates, mean, scores, marks=tuple(sorted({*found} - {""})))


def _ranks(task: TaskBoard) -> _TaskRanks | None:
    """Rank the entries of a task; None where it has none, or its reference fails its diagnostics."""
    if not task.ranked or not task.evaluator.reference.passed:
        return None
    points, replicates, by_measure = [], [], {}
    for name in task.ranked_measures:
        estimates = [entry.mean[ALL][name] for entry in task.ranked]
        higher = MEASURES[name].higher
        by_measure[name] = ranks(np.array([[one.value for one in estimates]]), higher)[0]
        points.append(by_measure[name])
        replicates.append(ranks(np.stack([one.draws for one in estimates], axis=1), higher))
    titles = [entry.title for entry in task.ranked]
    return _TaskRanks(titles, np.mean(points, axis=0), np.mean(replicates, axis=0), by_measure)


def _by_title(submissions: Sequence[Submission]) -> dict[str, list[Submission]]:
    """Group submissions into entries: seeds of one setting together, settings of one title told apart."""
    settings: dict[tuple[str, str], list[Submission]] = {}
    for one in submissions:
        settings.setdefault((one.title, _setting(one)), []).append(one)
    titles = [title for title, _ in settings]
    ends = told_apart([setting for _, setting in settings])  # of a file without a run, the end of its path
    return {
        f"{title} ({end})" if titles.count(title) > 1 else title: seeds
        for ((title, _), seeds), end in zip(settings.items(), ends, strict=True)
    }


def _setting(submission: Submission) -> str:
    """Return 6 digits shared by submissions that differ in nothing but the seed; its source for a file without a run."""
    run = submission.about.run
    if run is None:
        return str(submission.source)
    same = {key: value for key, value in run.items() if key != "seed"}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:6]
