"""The board: entries scored and ranked, for each task and over tasks.

For each task the entries are ranked by each measure of the competition (`measures.RANKED`). The rank of a task is the mean
over its measures, the final rank the mean over tasks; with one task this is the competition's light track, with all its
extended track. Replicates vary with test points and the chains of the reference, the same for all entries, and with the seeds of each
entry, whose values are averaged. Places are given as far as differences are resolved (`scoring/resolution.py`). A reference that
fails its diagnostics gives no ranking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import told_apart
from retinabench.core.seeds import numpy_generator
from retinabench.fidelity.leaderboard.results import (
    FidelityBoards,
    FidelityEntry,
    RankedDivision,
    RankedEntry,
    TaskBoard,
    scored,
)
from retinabench.fidelity.leaderboard.shipped import is_shipped, settings_of
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.scoring.measures import (
    ALL,
    MEASURES,
    SECOND_MOMENT,
    Estimate,
    average,
    nearness,
    order_doubt,
    seed_shifts,
)
from retinabench.fidelity.scoring.resolution import Contest, Resolution, places_of_ranks, resolve
from retinabench.fidelity.submissions.submission import DRAWS, About, Submission
from retinabench.fidelity.targets.target import Target
from retinabench.metrics.comparison import RankedModel, ScoreRanking, SetRanking
from retinabench.metrics.paired import aggregate, ranks
from retinabench.metrics.weighted_images import percentile_interval
from retinabench.reports.leaderboard.submission import Kind

REGRESSION = ("wasserstein", "w2", "w2_kit", "w2_as_printed", "rmse", "crps", "coverage_90")
NEEDS_DECISION = ("regret", "referral_area")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _TaskRanks:
    """Ranks of a task's E entries: mean over measures (E,), its replicates (R, E), and (E,) by measure."""

    titles: list[str]
    mean: Floats
    replicates: Floats
    by_measure: dict[str, Floats]
    resolution: Resolution


def score_divisions(evaluator: Evaluator, submissions: Sequence[Submission]) -> list[TaskBoard]:
    """Score the submissions for one task, and rank those of each track and tier of the budget among themselves."""
    divisions: dict[RankedDivision, list[Submission]] = {}
    for one in submissions:
        divisions.setdefault(RankedDivision.of(one, evaluator.target), []).append(one)
    return [score_task(evaluator, divisions[one], one) for one in sorted(divisions, key=lambda one: one.key)]


def score_task(
    evaluator: Evaluator, submissions: Sequence[Submission], division: RankedDivision | None = None
) -> TaskBoard:
    """Score and rank submissions of one division for one task, with the trivial ones beside them.

    Without a division they are ranked together whatever their track and tier.
    """
    by_title = _by_title([*submissions, *baselines(evaluator.target, evaluator.predictive)])
    entries = {title: _entry(evaluator, title, seeds) for title, seeds in by_title.items()}
    board = TaskBoard(entries, _sets(evaluator, entries), evaluator, division)
    ranked = {"rank": _ranks(board, board.ranked_measures), "rank_by_std": _ranks(board, (SECOND_MOMENT,))}
    for name, found in ranked.items():
        if found is not None:
            for k, title in enumerate(found.titles):
                rank = _rank(float(found.mean[k]), found.replicates[:, k], found.resolution.places[k])
                entries[title] = replace(entries[title], **{name: rank})  # type: ignore[arg-type]
    return board if (first := ranked["rank"]) is None else replace(board, resolution=first.resolution)


def _sets(evaluator: Evaluator, entries: Mapping[str, FidelityEntry]) -> dict[str, SetRanking]:
    """Return the values of all entries by group of test points and measure, intervals of several seeds vary with these."""
    found = {}
    for group, rows in evaluator.resampling.groups.items():
        models: dict[str, dict[str, RankedModel]] = {name: {} for name in measures_of(evaluator.target)}
        for title, entry in entries.items():
            mean = entry.mean[group]
            values = {name: np.array([one[group][name].value for one in entry.estimates]) for name in mean}
            shifted = _shifted(evaluator, title, mean, values)
            for name in models:
                models[name][title] = scored(name, shifted.get(name), _error(values.get(name)))
        scores = {
            name: ScoreRanking("higher" if MEASURES[name].higher else "lower", of, ()) for name, of in models.items()
        }
        found[group] = SetRanking(len(rows), None, 0, scores)
    return found


def _rank(value: float, replicates: Floats, places: tuple[int, int]) -> RankedModel:
    """Return a mean rank with the interval of its replicates (R,), and the places that are resolved."""
    low = high = np.nan
    if len(replicates):
        (low,), (high,) = percentile_interval(replicates[:, None], points=True)
    return RankedModel(value, rank=value, rank_low=float(low), rank_high=float(high), best=places[0], worst=places[1])


def make_board(tasks: Sequence[TaskBoard]) -> FidelityBoards:
    """Rank the entries of each division over tasks, those with a submission for every task that the division ranks."""
    divisions = sorted({task.division or RankedDivision() for task in tasks}, key=lambda one: one.key)
    return FidelityBoards(list(tasks), [row for division in divisions for row in _over_tasks(tasks, division)])


def _over_tasks(tasks: Sequence[TaskBoard], division: RankedDivision) -> list[RankedEntry]:
    """Return the entries of a division by their mean rank over its tasks, and that by the second moment of those with samples."""
    own = [task for task in tasks if (task.division or RankedDivision()) == division]
    second = {row.title: row.rank for row in _mean_ranks([_ranks(task, (SECOND_MOMENT,)) for task in own], division)}
    rows = _mean_ranks([_ranks(task, task.ranked_measures) for task in own], division)
    return [replace(row, rank_by_std=second.get(row.title)) for row in rows]


def _mean_ranks(of_tasks: Sequence[_TaskRanks | None], division: RankedDivision) -> list[RankedEntry]:
    found = [ranked for ranked in of_tasks if ranked is not None]
    titles = [title for title in found[0].titles if all(title in of.titles for of in found)] if found else []
    if not titles or (len(titles) < 2 and len(found) > 1):
        return []  # the only entry on all tasks is compared with no other one
    columns = [[of.titles.index(title) for title in titles] for of in found]
    over_tasks = np.mean([of.replicates[:, own] for of, own in zip(found, columns, strict=True)], axis=0)
    shared = places_of_ranks(over_tasks) if len(found) > 1 else found[0].resolution.places
    rows = []
    for number, title in enumerate(titles):
        at = [(of, column[number]) for of, column in zip(found, columns, strict=True)]
        mean = float(np.mean([of.mean[k] for of, k in at]))
        names = dict.fromkeys(name for of, _ in at for name in of.by_measure)
        measured = {name: [of.by_measure[name][k] for of, k in at if name in of.by_measure] for name in names}
        by_measure = {name: float(np.mean(values)) for name, values in measured.items()}
        rank = _rank(mean, over_tasks[:, number], shared[number])
        rows.append(RankedEntry(title, rank, by_measure, len(found), division))
    return sorted(rows, key=lambda row: row.rank.rank)


def measures_of(target: Target) -> list[str]:
    """Return the measures of a task, the decision measures only where it has a decision."""
    if target.likelihood == "gaussian":
        return list(REGRESSION)
    skipped = REGRESSION if target.decision else (*REGRESSION, *NEEDS_DECISION)
    return [name for name in MEASURES if name not in skipped]


def _entry(evaluator: Evaluator, title: str, submissions: list[Submission]) -> FidelityEntry:
    estimates = [evaluator.grade(one) for one in submissions]
    mean = {  # of what all seeds have: those that come with the package have no samples
        group: {
            name: average([one[group][name] for one in estimates])
            for name in of_group
            if all(name in one[group] for one in estimates)
        }
        for group, of_group in estimates[0].items()
    }
    about, marks = submissions[0].about, set()
    if not about.baseline:
        marks = {nearness(one, evaluator.reference) for one in submissions}
        marks |= {order_doubt(one, evaluator.predictive, evaluator.truth) for one in submissions}
    kind: Kind = "submission"
    if about.baseline or all(map(is_shipped, submissions)):
        kind = "trivial" if about.baseline else "baseline"
    return FidelityEntry(title, kind, submissions, tuple(sorted(marks - {""})), estimates, mean)


def _shifted(
    evaluator: Evaluator, title: str, estimates: Mapping[str, Estimate], values: Mapping[str, Floats]
) -> dict[str, Estimate]:
    """Return estimates whose replicates also vary with the values of the seeds."""
    shifts = seed_shifts(values, evaluator.replicates, evaluator.seed, f"{evaluator.target.name} {title}")
    return {
        name: Estimate(one.value, one.draws + shifts[name]) if name in shifts and len(one.draws) else one
        for name, one in estimates.items()
    }


def _error(values: Floats | None) -> float:
    with np.errstate(invalid="ignore"):  # of infinite values, such as an NLL, the error is not defined
        return np.nan if values is None or len(values) < 2 else aggregate(values.tolist()).error


def _ranks(task: TaskBoard, names: Sequence[str]) -> _TaskRanks | None:
    """Rank the entries of a task by the mean of their ranks by some measures; None without entries, or where its reference fails."""
    entries = [entry for entry in task.ranked if all(name in entry.mean[ALL] for name in names)]
    if not entries or not task.evaluator.reference.passed:
        return None
    seeds = [[one.about.seed for one in entry.seeds] for entry in entries]
    values = [
        {key: np.array([one[ALL][key].value for one in entry.estimates]) for key in entry.mean[ALL]}
        for entry in entries
    ]
    shifted = [
        _shifted(task.evaluator, entry.title, entry.mean[ALL], own) for entry, own in zip(entries, values, strict=True)
    ]
    replicates, contests, by_measure = [], [], {}
    for name in names:
        higher, means = bool(MEASURES[name].higher), [entry.mean[ALL][name] for entry in entries]
        own = [of_entry[name] for of_entry in values]
        contests.append(Contest.of(higher, own, [one.draws for one in means], seeds))
        by_measure[name] = ranks(np.array([[one.value for one in means]]), higher)[0]
        replicates.append(ranks(np.stack([one[name].draws for one in shifted], axis=1), higher))
    titles = [entry.title for entry in entries]
    mean = np.mean(list(by_measure.values()), axis=0)
    return _TaskRanks(titles, mean, np.mean(replicates, axis=0), by_measure, resolve(contests))


def _by_title(submissions: Sequence[Submission]) -> dict[str, list[Submission]]:
    """Group submissions into entries: seeds of one setting together, settings of one title told apart, but trivial ones."""
    settings: dict[tuple[str, str], list[Submission]] = {}
    for one in submissions:
        settings.setdefault((one.title, _setting(one)), []).append(one)
    titles = [title for title, _ in settings]
    ends = told_apart([setting for _, setting in settings])  # of a file without a run, the end of its path
    found: dict[str, list[Submission]] = {}
    for ((title, _), seeds), end in zip(settings.items(), ends, strict=True):
        name = f"{title} ({end})" if titles.count(title) > 1 and seeds[0].source else title
        while name in found:  # a title that looks like one told apart
            name += " (another)"
        found[name] = seeds
    return found


def _setting(submission: Submission) -> str:
    """Return 6 digits shared by submissions that differ in nothing but the seed; its source for a file without a run."""
    if submission.about.run is None:
        return str(submission.source)
    return hashlib.sha256(settings_of(submission).encode()).hexdigest()[:6]


def baselines(target: Target, reference: NDArray[np.floating]) -> list[Submission]:
    """Return the trivial submissions, from probabilities (N, C) or draws (N, M) of the reference.

    Classification: the most frequent class of the reference for every point; uniform probabilities; the reference's own
    class with certainty. Regression: the distribution of y over the training points, a standard Gaussian, for every
    point; the reference's mean with certainty.
    """
    if target.likelihood == "gaussian":
        generator = numpy_generator(0, "fidelity baseline", target.name)
        marginal = generator.standard_normal((len(reference), DRAWS))
        point = np.repeat(reference.mean(axis=1, dtype=np.float64)[:, None], DRAWS, axis=1)
        return [_named("marginal of y", draws=marginal), _named("mean of the reference", draws=point)]
    points, classes = reference.shape
    named = reference.argmax(axis=1)
    constant = np.tile(np.eye(classes)[np.bincount(named).argmax()], (points, 1))
    return [
        _named("constant class", probs=constant),
        _named("uniform", probs=np.full((points, classes), 1 / classes)),
        _named("one-hot of the reference", probs=np.eye(classes)[named]),
    ]


def _named(title: str, **values: NDArray[np.float64]) -> Submission:
    return Submission(values.get("probs"), None, values.get("draws"), About(title=title, baseline=True))
