"""The page of a fidelity board, and the files that hold its numbers and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.fidelity.leaderboard.pages import figures
from retinabench.fidelity.leaderboard.pages.tables import (
    groups_shown,
    power_text,
    ranking_tables,
    refused_table,
    strength_table,
    task_table,
)
from retinabench.fidelity.leaderboard.pages.usefulness import corruption_table, usefulness_table
from retinabench.fidelity.leaderboard.printed import final_ranking
from retinabench.fidelity.leaderboard.recorded import recorded_table
from retinabench.fidelity.leaderboard.results import Board, FidelityEntry, TaskBoard
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.reports.toolkit.figures import to_svg
from retinabench.reports.toolkit.pages import render
from retinabench.reports.toolkit.renderers import to_markdown
from retinabench.reports.toolkit.style import LegendEntry, Panel, mark
from retinabench.reports.toolkit.tables import Table

MOST_CURVES = 5  # more curves cannot be told apart

MOST_NAMED = 4  # entries in a sentence


@dataclass(frozen=True)
class TaskSection:
    """The section of one task in the page: its board figure, panels of curves with their legend, and its tables."""

    name: str
    heading: str
    power: str
    board: TaskBoard
    width: int
    scores: Panel
    legend: list[LegendEntry]
    panels: list[Panel]
    tables: list[Table]


def write_board(board: Board, out: Path) -> Path:
    """Write `board.json` (all numbers), `board.md` (all tables) and `index.html`; return the page's path."""
    write_json(out / "board.json", board.to_dict())
    write_bytes(out / "board.md", markdown(board).encode())
    write_bytes(out / "index.html", page(board).encode())
    return out / "index.html"


def markdown(board: Board) -> str:
    """Return all tables, the ranking first."""
    tables = [
        *ranking_tables(board),
        usefulness_table(board.tasks),
        *(one for task in board.tasks for one in _tables(task)),
        refused_table(board),
    ]
    return "\n".join(to_markdown(table) for table in tables if table is not None)


def page(board: Board) -> str:
    """Return the page: self-contained, everything that comes from files escaped."""
    names = [task.target.name for task in board.tasks]
    sections = [_section(task, alone=names.count(task.target.name) == 1) for task in board.tasks]
    context = {
        "title": "How close do approximate posteriors come to that of Hamiltonian Monte Carlo?",
        "leads": leads(board),
        "rankings": ranking_tables(board),
        "useful": usefulness_table(board.tasks),
        "printed": final_ranking(board.tasks),
        "refused": refused_table(board),
        "budgets": _budget_panels(board),
        "sections": sections,
        "by_target": [
            [one for one in sections if one.board.target.name == name] for name in dict.fromkeys(names)
        ],
    }
    return render("board.html.j2", context, package="retinabench.fidelity.leaderboard.pages")


def leads(board: Board) -> list[str]:
    """Return a sentence on each ranking: which entries may be the nearest, as far as differences are resolved."""
    found = []
    for division in dict.fromkeys(entry.division for entry in board.ranking):
        ranking = [entry for entry in board.ranking if entry.division == division]
        titles = [entry.title for entry in ranking if entry.rank.places[0] == 1]
        named = ", ".join(titles[:MOST_NAMED])
        more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
        tasks = f" on {ranking[0].tasks} tasks" if ranking[0].tasks > 1 else ""
        where = "" if division is None else f" ({division.label})"
        many = "is" if len(titles) == 1 else "may be"
        found.append(
            f"{len(titles)} of {len(ranking)} entries {many} the nearest{tasks}{where}: {named}{more}."
        )
    return found


def _tables(task: TaskBoard) -> list[Table]:
    """Return the tables of each group of points, then the ranked measures by strength of the corruption."""
    by_strength = (strength_table(task, name) for name in task.ranked_measures)
    return [
        *(task_table(task, group) for group in groups_shown(task)),
        *(
            table
            for table in (*by_strength, corruption_table(task), recorded_table(task))
            if table is not None
        ),
    ]


def _section(task: TaskBoard, *, alone: bool) -> TaskSection:
    svg = to_svg(
        figures.board_figure(task),
        f"{_name(task)}-board",
        title=f"{task.target.title}: scores",
        description="Each entry's closeness to the reference, with 95 % intervals.",
    )
    caption = (
        "All test points, 95 % intervals. Green: one chain of the reference against the others. Dotted: the noise "
        "floor. Crosses: trivial submissions."
    )
    shown = [entry for entry in task.ordered if not entry.baseline][:MOST_CURVES]
    return TaskSection(
        name=_name(task),
        heading=task.target.title
        if alone or task.division is None
        else f"{task.target.title} ({task.division.short})",
        power=power_text(task),
        board=task,
        width=figures.board_width(task),
        scores=Panel("", svg, caption),
        legend=[LegendEntry(entry.title, mark(k)) for k, entry in enumerate(shown)],
        panels=list(_panels(task, shown)),
        tables=_tables(task),
    )


def _budget_panels(board: Board) -> list[Panel]:
    """Return a figure of the distance over the gradients for each task that has entries at several tiers."""
    panels = []
    for target in dict.fromkeys(task.target.name for task in board.tasks):
        tasks = [task for task in board.tasks if task.target.name == target]
        if len({task.division.tier for task in tasks if task.division is not None}) > 1:
            title = tasks[0].target.title
            svg = to_svg(
                figures.budget_figure(tasks), f"{target}-budgets", title=f"{title}: distance over gradients",
                description="The last ranked measure of each entry at each budget.",
            )  # fmt: skip
            panels.append(Panel(title, svg))
    return panels


def _name(task: TaskBoard) -> str:
    """Return a name of the board of a task and division, for anchors and figures."""
    if task.division is None:
        return task.target.name
    return f"{task.target.name}-{task.division.track}-{task.division.tier or 'none'}"


def _panels(task: TaskBoard, shown: list[FidelityEntry]) -> Iterator[Panel]:
    """Yield the histograms and curves of each group; the first seed of an entry stands for it."""
    evaluator = task.evaluator
    truth, gaussian = evaluator.truth, task.target.likelihood == "gaussian"
    reference = evaluator.reference.draws if gaussian else evaluator.reference.probs
    groups = groups_shown(task)
    for kind in ("uncertainty", "calibration") if truth is not None else ("uncertainty",):
        for group in groups[1:] or groups:
            rows = evaluator.resampling.groups[group]
            submissions = [entry.submissions[0] for entry in shown]
            values = [
                (mark(k), np.asarray(one.draws if gaussian else one.probs)[rows])
                for k, one in enumerate(submissions)
            ]
            if kind == "uncertainty":
                draw = figures.std_panel if gaussian else figures.entropy_panel
                figure, what = draw(reference[rows], values), "Uncertainty"
            else:
                figure = figures.calibration_panel(
                    np.asarray(truth)[rows], reference[rows], values, gaussian=gaussian
                )
                what = "Calibration"
            heading = f"{what}: {'all test points' if group == ALL else group.replace('_', '-')}"
            name = f"{_name(task)}-{kind}-{group}".replace(" ", "-")
            svg: Markup = to_svg(
                figure, name, title=heading, description=f"{task.target.title}, against the reference."
            )
            yield Panel(heading, svg)
