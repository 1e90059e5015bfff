"""The tables of a fidelity board for terminal, Markdown and page.

Every task has a table for each group of test points: the ranked entries first, then one chain of the reference against the others (the
ceiling), the noise floor, numbers that others printed or that were recorded once, and the trivial entries. Beside closeness stand
whether the posterior itself is useful, by the negative log-likelihood of the true classes or the CRPS of y, and how entries fare under
damage, as in the table of the competition's paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity import distances
from retinabench.fidelity.leaderboard.results import (
    FidelityBoards,
    FidelityEntry,
    RankedDivision,
    RankedEntry,
    Refused,
    Scores,
    TaskBoard,
)
from retinabench.fidelity.scoring import measures
from retinabench.fidelity.scoring.measures import ALL, MEASURES, mean_of
from retinabench.metrics.comparison import RankedModel
from retinabench.reports.leaderboard.tables import rank_text
from retinabench.reports.toolkit.printed import printed_tables
from retinabench.reports.toolkit.tables import TWO_DIGITS, UNDEFINED, Cell, Column, NumberFormat, Quantity, Row, Table

MAP = "map"  # the entry
_FORM = NumberFormat(3)
Values = NDArray[np.float64]
CEILING, FLOOR = "one chain of the reference", "noise floor"
# Those that fit 80 columns.
TERMINAL_COLUMNS = {"categorical": ("agreement", "total_variation", "accuracy"), "gaussian": ("wasserstein", "crps")}
_LEGEND = (
    "Intervals of 95 % over test points, and of the ranked measures over chains of the reference; with several seeds over these too, ± their "
    "standard error. Places are shared where differences are not resolved."
)

_SHIPPED = (
    "Entries without the mark (here) come with the package, as they were submitted, rounded, with the stds of their "
    "posterior samples instead of the samples."
)
_ALONE = " With one seed of each entry, places hold for these runs alone: other seeds may change them."
_DECLARED = "A budget that is declared was stated in the submission: no hashes of a run vouch for it."


def task_table(task: TaskBoard, group: str = ALL, *, terminal: bool = False) -> Table:
    known = task.scores(next(iter(task.entries)), group)
    wanted = TERMINAL_COLUMNS[task.target.likelihood] if terminal else known
    without = task.evaluator.reference.external  # what an imported reference cannot tell has no column
    names = [name for name in wanted if name in known and (np.isfinite(known[name].value) or not without)]
    with_draws = group == ALL and task.evaluator.draws is not None
    ranked = group == ALL and sum(entry.rank is not None for entry in task.entries.values()) > 1
    second = ranked and any(entry.rank_by_std is not None for entry in task.entries.values())
    first = len(task.ranked_measures)
    columns = [Column("place")] * ranked + [Column("place by std")] * second + [_column(name) for name in names[:first]]
    columns += [Column("exact draws")] * with_draws + [_column(name) for name in names[first:]]
    columns += [Column("budget"), *[Column("targets")] * (not terminal)]

    def row(label: str, scores: Scores, entry: FidelityEntry | None = None) -> Row:
        cells = [UNDEFINED if entry is None else _rank_cell(entry.rank)] * ranked
        cells += [UNDEFINED if entry is None else _rank_cell(entry.rank_by_std)] * second
        for number, name in enumerate(names):
            cells += [_draws_cell(task, entry)] * (with_draws and number == first)
            cells.append(_score_cell(name, scores[name]) if name in scores else UNDEFINED)
        cells.append(_chain_cell(task, label) if entry is None else _budget_cell(entry))
        if not terminal:
            cells.append(UNDEFINED if entry is None else _target_cell(entry, task))
        return Row(_label(label, task.here), cells, control=entry is None or entry.kind == "trivial")

    rows = [row(entry.title, task.scores(entry.title, group), entry) for entry in task.ordered]
    floor = {name: RankedModel(value) for name, value in task.evaluator.floor[group].items()}
    controls = [(CEILING, task.ceiling[group]), (FLOOR, floor), *printed_rows(task, group).items()]
    shown = [row(label, scores) for label, scores in controls if set(scores) & set(names)]
    rows[len(task.competitors) : len(task.competitors)] = shown
    caption = _caption(task, f"{group_label(group)} ({task.points[group]:,})")
    return Table.of(caption, columns, rows, row_header="entry", note=_note(task))


def strength_table(task: TaskBoard, name: str) -> Table | None:
    """Return one measure by strength of the corruption, or None where the task has no strengths."""
    strengths = [group for group in task.points if group[-1:].isdigit()]
    if not strengths:
        return None
    rows = []
    for entry in task.ordered:
        cells = [_score_cell(name, task.value(entry.title, group, name)) for group in strengths]
        rows.append(Row(_label(entry.title, task.here), cells, entry.kind == "trivial"))
    ceiling = [_score_cell(name, task.ceiling[group][name]) for group in strengths]
    rows.insert(len(task.competitors), Row(CEILING, ceiling, True))
    caption = _caption(task, f"{MEASURES[name].label} by strength")
    return Table.of(caption, [Column(group) for group in strengths], rows, row_header="entry")


def _caption(task: TaskBoard, what: str) -> str:
    return f"{task.target.title}: {what}{'' if task.division is None else f'; {task.division.label}'}"


def group_label(group: str) -> str:
    return "all test points" if group == ALL else group.replace("_", "-")


def ranking_tables(board: FidelityBoards) -> list[Table]:
    here = {title for task in board.tasks for title in task.here}
    return [_ranking_table(ranking, division, here) for division, ranking in board.divisions.items()]


def refused_table(board: FidelityBoards) -> Table | None:
    """Return the files that are not on the board with the reasons, or None where there are none."""
    if not board.refused:
        return None
    rows = [Row(one["file"], [Cell(one["why"])]) for one in map(Refused.to_dict, board.refused)]
    return Table.of("Files that are not on the board", [Column("why")], rows)


def _ranking_table(ranking: list[RankedEntry], division: RankedDivision | None, here: set[str]) -> Table:
    names, tasks, rows = list(ranking[0].by_measure), ranking[0].tasks, []
    heads = ["place", "place by std", "mean rank", *(f"rank by {MEASURES[name].label}" for name in names)]
    for entry in ranking:
        mean = Cell.number(entry.rank.rank, entry.rank.rank_low, entry.rank.rank_high, form=TWO_DIGITS)
        cells = [_rank_cell(entry.rank), _rank_cell(entry.rank_by_std), mean]
        cells += [Cell.number(entry.by_measure[name], form=TWO_DIGITS) for name in names]
        rows.append(Row(_label(entry.title, here), cells))
    caption = f"Mean rank over {tasks} tasks" if tasks > 1 else "Rank on one task"
    title = f"{caption}; {division.label}" if division is not None else caption
    return Table.of(title, [Column(head) for head in heads], rows, row_header="entry")


def groups_shown(task: TaskBoard) -> list[str]:
    """Return the groups that have tables of their own: all points, and the kinds where there are several."""
    kinds = [group for group in task.points if group != ALL and not group[-1:].isdigit()]
    return [ALL, *kinds] if len(kinds) > 1 else [ALL]


def _label(title: str, here: set[str]) -> str:
    """Return how tables call an entry, told apart from those that come with the package."""
    return f"{title} (here)" if title in here else title


def _column(name: str) -> Column:
    about = MEASURES[name]
    return Column(about.label, direction="" if about.higher is None else "higher" if about.higher else "lower")


def _score_cell(name: str, score: RankedModel) -> Cell:
    defined = np.isfinite(score.value)
    form = NumberFormat(1 if defined and abs(score.value) >= 10 else 3)
    if np.isfinite(score.error):
        return Cell.number(score.value, error=score.error, form=form)
    return Cell(Quantity(score.value, score.low, score.high), form, why="" if defined else MEASURES[name].undefined)


def _draws_cell(task: TaskBoard, entry: FidelityEntry | None) -> Cell:
    draws = None if entry is None else task.draws(entry.title)
    return UNDEFINED if draws is None or not draws.text else Cell(draws.text)


def _rank_cell(rank: RankedModel | None) -> Cell:
    return UNDEFINED if rank is None else Cell(rank_text(rank.best, rank.worst))


def _chain_cell(task: TaskBoard, label: str) -> Cell:
    gradients = task.evaluator.reference.about.chain_gradients
    return Cell(f"{gradients:,.0f}") if label == CEILING and gradients is not None else UNDEFINED


def _budget_cell(entry: FidelityEntry) -> Cell:
    if (budget := entry.budget) is None:
        return UNDEFINED
    limit = budget.limit or budget.tier
    said = ["over"] * budget.over + ["rerun"] * entry.rerun + ["declared"] * entry.declared
    return Cell(f"{budget.used:,.0f}" + (f" / {limit:,.0f}" if limit else ""), below=", ".join(said))


def _target_cell(entry: FidelityEntry, task: TaskBoard) -> Cell:
    """Return what the first seed of an entry targets, why it is not ranked where it is marked, and what to ask of it."""
    if entry.kind == "trivial":
        return UNDEFINED
    first = entry.seeds[0]
    stated = "not stated" if first.about.implied is None else first.about.implied.text()
    return Cell(stated, below="; ".join([*entry.notes, *first.departures(task.target), *task.doubts(entry)]))


def power_text(task: TaskBoard) -> str:
    """Return what the task can tell apart, in a sentence; empty where fewer than two entries are ranked."""
    found = task.resolution
    if found is None or not found.pairs:
        return ""
    named = zip(task.ranked_measures, found.detectable, strict=True)
    power = [f"{value:.2g} in {MEASURES[name].label}" for name, value in named if value > 0]
    said = f"{found.resolved} of {found.pairs} pairs are resolved"
    alone = "" if any(len(entry.seeds) > 1 for entry in task.ranked) else _ALONE
    return (f"{said}; power .8 for a difference of {' or '.join(power)}." if power else f"{said}.") + alone


def _note(task: TaskBoard) -> str:
    reference = task.evaluator.reference
    shipped = _SHIPPED if any(entry.kind == "baseline" for entry in task.competitors) else ""
    declared = _DECLARED if any(entry.declared for entry in task.competitors) else ""
    marked = (f"'{entry.title}' is not ranked: {', '.join(entry.notes)}." for entry in task.competitors if entry.notes)
    doubted = ((entry.title, task.doubts(entry)) for entry in task.competitors)
    asked = " ".join(f"Ask of '{title}': {', '.join(doubts)}." for title, doubts in doubted if doubts)
    if reference.passed:
        verdict = reference.judgement.verdict
        known = "" if verdict == "passed" else f"The reference is {verdict}. "
        parts = (f"{known}{_LEGEND}", *marked, asked, declared, shipped, power_text(task))
        return " ".join(part for part in parts if part)
    return f"No ranking: the reference fails its own diagnostics ({'; '.join(reference.why)}). {_LEGEND} {declared}".rstrip()


# ------------------------------------------------------------------------------------------ printed and recorded


def printed_rows(task: TaskBoard, group: str = ALL) -> dict[str, Scores]:
    """Return rows that others printed or that were recorded once, and the ceiling that an imported reference was published with.

    Recorded rows stand beside entries of their tier where the package holds no submissions of the task.
    """
    found: dict[str, Scores] = {}
    ceiling = task.evaluator.reference.about.published_ceiling
    if ceiling is not None and group == ALL:
        found["published ceiling"] = {k: RankedModel(v) for k, v in ceiling.items() if k in MEASURES}
    alone = len(task.evaluator.resampling.groups) == 2  # all points, and one group that is the same
    tier = task.division.tier if task.division else None
    shipped = any(entry.kind == "baseline" for entry in task.competitors)
    for printed in printed_tables().values():
        here = printed.task == task.target.name and ((printed.group or ALL) == group or (alone and not printed.group))
        if here and (printed.tier is None or (printed.tier == tier and not shipped)):
            mark = "printed" if printed.tier is None else "recorded"
            for title in printed.rows:
                values = printed.values(title).items()
                found[f"{title} ({mark})"] = {name: RankedModel(value, error=error) for name, (value, error) in values}
    return found


def final_ranking(tasks: Sequence[TaskBoard]) -> Table | None:
    """Return the final ranking of 2021 as printed, where a task of the competition is on the board."""
    return printed_tables()["competition-2021-final"].table() if any(t.target.points for t in tasks) else None


# -------------------------------------------------------------------------------------------------- usefulness


def usefulness_table(tasks: Sequence[TaskBoard]) -> Table | None:
    """Return how well posterior, MAP and no knowledge predict, by task and group; None where no labels are known."""
    rows = []
    for name in dict.fromkeys(task.target.name for task in tasks):
        boards = [task for task in tasks if task.target.name == name]
        if boards[0].evaluator.truth is None:
            continue
        points = [entry for task in boards for entry in task.competitors if entry.seeds[0].about.method == MAP]
        known = max(points, key=lambda entry: entry.budget.used if entry.budget else 0, default=None)
        rows += _usefulness_rows(boards[0], known)
    if not rows:
        return None
    columns = [Column(title, direction="lower") for title in ("posterior", "MAP", "uniform")]
    columns += [Column("posterior less MAP"), Column("posterior less uniform")]
    note = (
        "Negative log-likelihood in nats; of a regression the CRPS, and instead of uniform the distribution of y over the training points. "
        "Differences below 0: the posterior predicts better; 95 % intervals over test points."
    )
    return Table.of("Does the posterior predict better than MAP and than no knowledge?", columns, rows, note=note)


def _usefulness_rows(task: TaskBoard, known: FidelityEntry | None) -> list[Row]:
    evaluator, first, found = task.evaluator, _losses(task, [task.evaluator.predictive]), []
    nothing = next(entry for entry in task.entries.values() if entry.title in ("uniform", "marginal of y"))
    others = [None if one is None else _losses(task, [s.values for s in one.seeds]) for one in (known, nothing)]
    for group, points in evaluator.resampling.groups.items():
        if group[-1:].isdigit():
            continue
        means = (UNDEFINED if one is None else _cell(Quantity(float(one[points].mean()))) for one in (first, *others))
        cells = list(means)
        for one in others:
            if one is None:
                cells.append(UNDEFINED)
                continue
            with np.errstate(invalid="ignore"):
                term = mean_of((first - one)[points])
            estimate = evaluator.resampling.estimate({"difference": term}, group)["difference"]
            cells.append(_cell(Quantity(estimate.value, *estimate.interval())))
        found.append(Row(f"{task.target.name}: {group_label(group)}", cells))
    return found


def _cell(loss: Quantity) -> Cell:
    return Cell(loss, _FORM, why="" if loss.defined else MEASURES["nll"].undefined)


def _losses(task: TaskBoard, predictions: Sequence[NDArray[np.floating]]) -> Values:
    """Return the loss of each test point, (N,), the mean over seeds."""
    truth = np.asarray(task.evaluator.truth)
    if task.target.likelihood == "gaussian":
        found = [measures.crps(one, truth.astype(np.float64)) for one in predictions]
    else:
        found = [measures.classification(one, truth)["nll"].terms[:, 0] for one in predictions]
    return np.asarray(np.mean(found, axis=0), np.float64)


def corruption_table(task: TaskBoard) -> Table | None:
    """Return the ranked measures over all kinds and strengths of corruption; None where the task has no kinds."""
    groups, kinds = task.evaluator.data.test.groups, task.target.groups
    cells = [np.flatnonzero(groups == cell) for cell in sorted(set(groups.tolist())) if cell.count("-") == 2]
    if task.target.likelihood != "categorical" or len(cells) < 2:
        return None
    names = (*task.ranked_measures, *(["accuracy"] if task.evaluator.truth is not None else []))
    rows = []
    for entry in task.ordered:
        of_seeds = [_of_cells(task, one.values, cells, names) for one in entry.seeds]
        columns = np.mean(of_seeds, axis=0).T  # (measures, cells)
        shown = [Cell.number(float(one.mean()), error=float(one.std(ddof=1)), form=_FORM) for one in columns]
        rows.append(Row(entry.title, shown, entry.kind == "trivial"))
    note = f"Mean ± standard deviation over {len(cells)} cells, each kind of {kinds[1]} at each strength."
    return Table.of(_caption(task, "all kinds and strengths"), [_column(name) for name in names], rows, note=note)


def _of_cells(
    task: TaskBoard, probs: NDArray[np.floating], cells: Sequence[NDArray[np.intp]], names: Sequence[str]
) -> Values:
    """Return the mean of each measure in each cell, (cells, measures)."""
    known = distances.RANKED["categorical"]
    terms = {name: distance(probs, task.evaluator.predictive) for name, distance in known.items()}
    terms["agreement"] = np.where(task.evaluator.decided, terms["agreement"], np.nan)
    if (truth := task.evaluator.truth) is not None:
        terms["accuracy"] = probs.argmax(axis=1) == truth
    return np.array([[float(np.nanmean(terms[name][rows])) for name in names] for rows in cells])
