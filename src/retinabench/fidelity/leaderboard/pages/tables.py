"""The tables of the board for terminal, Markdown and page, and the files that show it.

Every task has a table for each group of test points: the ranked entries first, then one chain of the reference against
the others (the ceiling), the noise floor, and the trivial entries.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from retinabench.fidelity.leaderboard.printed import printed_rows
from retinabench.fidelity.leaderboard.results import (
    Board,
    FidelityEntry,
    RankedDivision,
    RankedEntry,
    TaskBoard,
)
from retinabench.fidelity.leaderboard.scores import Rank, Score
from retinabench.fidelity.scoring.measures import MEASURES
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.fidelity.targets.target import Target
from retinabench.reports.toolkit.number_format import TWO_DIGITS, NumberFormat, Quantity
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table

CEILING, FLOOR = "one chain of the reference", "noise floor"
COLUMNS = {
    "categorical": (
        "agreement", "total_variation", "epistemic_correlation", "epistemic_error", "disagreement_gap",
        "miscalibration", "regret", "accuracy", "nll", "referral_area",
    ),
    "gaussian": ("wasserstein", "w2", "w2_kit", "w2_as_printed", "rmse", "crps", "coverage_90"),
}  # fmt: skip
TERMINAL_COLUMNS = {
    "categorical": ("agreement", "total_variation", "accuracy"),
    "gaussian": ("wasserstein", "crps"),
}
"""Those that fit 80 columns."""
_LEGEND = (
    "Intervals of 95 % over test points, and of the ranked measures over chains of the reference; with several seeds over these too, ± their "
    "standard error. Places are shared where differences are not resolved."
)

_SHIPPED = (
    "Entries without the mark (here) come with the package, as they were submitted, rounded and without posterior "
    "samples."
)
_ALONE = " With one seed of each entry, places hold for these runs alone: other seeds may change them."
_DECLARED = "A budget that is declared was stated in the submission: no hashes of a run vouch for it."


def task_table(task: TaskBoard, group: str = ALL, *, terminal: bool = False) -> Table:
    """Return the table of one group of a task's test points.

    Args:
        task: The task.
        group: The group of test points.
        terminal: Leave out the columns that do not fit a terminal.
    """
    likelihood = task.target.likelihood
    known = task.entries[0].scores[group]
    wanted = (TERMINAL_COLUMNS if terminal else COLUMNS)[likelihood]
    without = task.evaluator.reference.external  # what an imported reference cannot tell has no column
    names = [name for name in wanted if name in known and (known[name].quantity.defined or not without)]
    with_draws = group == ALL and task.evaluator.draws is not None
    ranked = group == ALL and any(entry.rank is not None for entry in task.entries)
    columns = [Column("place")] * ranked + [_column(name) for name in names[: len(task.ranked_measures)]]
    columns += [Column("exact draws")] * with_draws + [
        _column(name) for name in names[len(task.ranked_measures) :]
    ]
    columns += [Column("budget"), *[Column("targets")] * (not terminal)]

    def row(label: str, scores: Mapping[str, Score], entry: FidelityEntry | None = None) -> Row:
        cells = [UNDEFINED if entry is None else _rank_cell(entry.rank)] * ranked
        for number, name in enumerate(names):
            cells += [_draws_cell(entry)] * (with_draws and number == len(task.ranked_measures))
            score = scores.get(name)
            cells.append(UNDEFINED if score is None else _score_cell(score))
        cells.append(_chain_cell(task, label) if entry is None else _budget_cell(entry))
        if not terminal:
            cells.append(UNDEFINED if entry is None else _target_cell(entry, task.target))
        return Row(_label(label, task.here), cells, control=entry is None or entry.baseline)

    rows = [row(entry.title, entry.scores[group], entry) for entry in task.ordered]
    floor = {name: Score(Quantity(value)) for name, value in task.evaluator.floor[group].items()}
    controls = [(CEILING, task.ceiling[group]), (FLOOR, floor)]
    first = len(task.competitors)
    controls += [(one.title, one.scores) for one in printed_rows(task.evaluator, group)]
    rows[first:first] = [row(label, scores) for label, scores in controls if set(scores) & set(names)]
    title = "all test points" if group == ALL else group.replace("_", "-")
    division = "" if task.division is None else f"; {task.division.label}"
    caption = f"{task.target.title}: {title} ({task.points[group]:,}){division}"
    return Table.of(caption, columns, rows, row_header="entry", note=_note(task))


def strength_table(task: TaskBoard, name: str) -> Table | None:
    """Return one measure by strength of the corruption, or None where the task has no strengths."""
    strengths = [group for group in task.points if group[-1:].isdigit()]
    if not strengths:
        return None
    rows = [
        Row(
            _label(entry.title, task.here),
            [_score_cell(entry.scores[group][name]) for group in strengths],
            entry.baseline,
        )
        for entry in task.ordered
    ]
    ceiling = [_score_cell(task.ceiling[group][name]) for group in strengths]
    rows.insert(len(task.competitors), Row(CEILING, ceiling, True))
    division = "" if task.division is None else f"; {task.division.label}"
    caption = f"{task.target.title}: {MEASURES[name].label} by strength{division}"
    return Table.of(caption, [Column(group) for group in strengths], rows, row_header="entry")


def ranking_tables(board: Board) -> list[Table]:
    """Return the final ranking of each division that has one."""
    divisions = list(dict.fromkeys(entry.division for entry in board.ranking))
    here = {title for task in board.tasks for title in task.here}
    return [
        _ranking_table([entry for entry in board.ranking if entry.division == division], division, here)
        for division in divisions
    ]


def refused_table(board: Board) -> Table | None:
    """Return the files that are not on the board with the reasons, or None where there are none."""
    if not board.refused:
        return None
    rows = [Row(record["file"], [Cell(record["why"])]) for record in (one.to_dict() for one in board.refused)]
    return Table.of("Files that are not on the board", [Column("why")], rows)


def _ranking_table(ranking: list[RankedEntry], division: RankedDivision | None, here: set[str]) -> Table:
    names, tasks = list(ranking[0].by_measure), ranking[0].tasks
    columns = [
        Column("place"),
        Column("mean rank"),
        *(Column(f"rank by {MEASURES[name].label}") for name in names),
    ]
    rows = [
        Row(
            _label(entry.title, here),
            [
                _rank_cell(entry.rank),
                Cell(entry.rank.quantity, TWO_DIGITS),
                *(Cell.number(entry.by_measure[name], form=TWO_DIGITS) for name in names),
            ],
        )
        for entry in ranking
    ]
    caption = f"Mean rank over {tasks} tasks" if tasks > 1 else "Rank on one task"
    title = f"{caption}; {division.label}" if division is not None else caption
    return Table.of(title, columns, rows, row_header="entry")


def groups_shown(task: TaskBoard) -> list[str]:
    """Return the groups that have tables of their own: all points, and the kinds where there are several."""
    kinds = [group for group in task.points if group != ALL and not group[-1:].isdigit()]
    return [ALL, *kinds] if len(kinds) > 1 else [ALL]


def _label(title: str, here: set[str]) -> str:
    """Return how tables call an entry, told apart from those that come with the package."""
    return f"{title} (here)" if title in here else title


def _column(name: str) -> Column:
    about = MEASURES[name]
    return Column(about.label, direction="higher" if about.higher else "lower")


def _score_cell(score: Score) -> Cell:
    quantity = score.quantity
    form = NumberFormat(1 if quantity.defined and abs(quantity.value) >= 10 else 3)
    if np.isfinite(quantity.error):
        return Cell.number(quantity.value, error=quantity.error, form=form)
    return Cell(quantity, form, why=score.why)


def _draws_cell(entry: FidelityEntry | None) -> Cell:
    return (
        UNDEFINED if entry is None or entry.draws is None or not entry.draws.text else Cell(entry.draws.text)
    )


def _rank_cell(rank: Rank | None) -> Cell:
    return UNDEFINED if rank is None else Cell(rank.text)


def _chain_cell(task: TaskBoard, label: str) -> Cell:
    """Return what a chain of the reference cost."""
    known = label == CEILING and task.chain_gradients is not None
    return Cell(f"{task.chain_gradients:,.0f}") if known else UNDEFINED


def _budget_cell(entry: FidelityEntry) -> Cell:
    if (budget := entry.budget) is None:
        return UNDEFINED
    said = [f"over {budget.limit or 0:.0f}"] * budget.over + ["declared"] * entry.declared
    return Cell(f"{budget.used:.0f}", below=", ".join(said))


def _target_cell(entry: FidelityEntry, target: Target) -> Cell:
    """Return what the first seed of an entry targets, and why it is not ranked where it is marked."""
    if entry.baseline:
        return UNDEFINED
    first = entry.submissions[0]
    stated = "not stated" if first.about.implied is None else first.about.implied.text()
    departures = first.departures(target)
    return Cell(stated, below="; ".join([*entry.marks, *departures]))


def power_text(task: TaskBoard) -> str:
    """Return what the task can tell apart, in a sentence; empty where fewer than two entries are ranked."""
    found = task.resolution
    if found is None or not found.pairs:
        return ""
    named = zip(task.ranked_measures, found.detectable, strict=True)
    power = [f"{value:.2g} in {MEASURES[name].label}" for name, value in named if value > 0]
    said = f"{found.resolved} of {found.pairs} pairs are resolved"
    alone = "" if any(len(entry.submissions) > 1 for entry in task.ranked) else _ALONE
    return (f"{said}; power .8 for a difference of {' or '.join(power)}." if power else f"{said}.") + alone


def _note(task: TaskBoard) -> str:
    reference = task.evaluator.reference
    shipped = _SHIPPED if any(entry.shipped for entry in task.competitors) else ""
    declared = _DECLARED if any(entry.declared for entry in task.competitors) else ""
    marked = (
        f"'{entry.title}' is not ranked: {', '.join(entry.marks)}."
        for entry in task.competitors
        if entry.marks
    )
    if reference.passed:
        verdict = reference.judgement.verdict
        known = "" if verdict == "passed" else f"The reference is {verdict}. "
        parts = (f"{known}{_LEGEND}", *marked, declared, shipped, power_text(task))
        return " ".join(part for part in parts if part)
    return f"No ranking: the reference fails its own diagnostics ({'; '.join(reference.why)}). {_LEGEND} {declared}".rstrip()
