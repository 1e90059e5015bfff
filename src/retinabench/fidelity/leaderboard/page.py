"""The page of a fidelity board with its figures, and the files that hold its numbers and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from retinabench.core.files import write_bytes, write_json
from retinabench.fidelity import distances
from retinabench.fidelity.leaderboard.results import FidelityBoards, FidelityEntry, TaskBoard
from retinabench.fidelity.leaderboard.tables import (
    corruption_table,
    final_ranking,
    group_label,
    groups_shown,
    power_text,
    ranking_tables,
    refused_table,
    strength_table,
    task_table,
    usefulness_table,
)
from retinabench.fidelity.scoring.measures import ALL, MEASURES
from retinabench.reports.toolkit.figures import (
    INK,
    MUTED,
    PASS,
    WIDTH,
    LegendEntry,
    Mark,
    Panel,
    canvas,
    drawing,
    light_grid,
    mark,
    to_svg,
)
from retinabench.reports.toolkit.pages import render
from retinabench.reports.toolkit.tables import Table, to_markdown

MOST_LINES = 8  # with a colour of their own
NEAR = 10  # times the least distance: a floor farther below is not drawn
BINS = 6  # of equally many points, for the calibration curves
REFERENCE = "#b9b8b2"
Curve = tuple[ArrayLike, ArrayLike]  # x and y
LEVELS = np.linspace(0.1, 0.9, 9)  # of central intervals, for regression


def board_width(task: TaskBoard) -> int:
    """Return the width of the task's board figure in CSS pixels: a panel for each ranked measure."""
    return 180 + 290 * len(task.ranked_measures)


def board_figure(task: TaskBoard) -> Figure:
    """Draw the ranked measures of all entries with intervals; a band shows one chain of the reference against the others."""
    names, entries = task.ranked_measures, task.ordered
    figure, [row] = canvas(board_width(task), 90 + 22 * len(entries), 1, len(names))
    places, floor = np.arange(len(entries))[::-1], task.evaluator.floor[ALL]
    for axes, name in zip(row, names, strict=True):
        if (ceiling := task.ceiling[ALL].get(name)) is not None:
            if ceiling.low <= ceiling.high:
                axes.axvspan(ceiling.low, ceiling.high, color=PASS, alpha=0.18, linewidth=0)
            axes.axvline(ceiling.value, color=PASS, linewidth=1.0)
        if name in floor:
            axes.axvline(floor[name], color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        for place, entry in zip(places, entries, strict=True):
            score = task.value(entry.title, ALL, name)
            color, marker = (MUTED, "x") if entry.kind == "trivial" else (INK, "o")
            if score.low <= score.high:
                axes.plot([score.low, score.high], [place, place], color=color, linewidth=1.2)
            axes.plot([score.value], [place], marker, color=color, markersize=5)
        axes.set(yticks=places, ylim=(-0.6, len(entries) - 0.4), xlabel=_axis(name))
        axes.set_yticklabels([entry.title for entry in entries] if axes is row[0] else [])
        axes.tick_params(axis="y", length=0)
        light_grid(axes, "x")
    return figure


def budget_figure(tasks: Sequence[TaskBoard]) -> Figure:
    """Draw the last ranked measure over the gradients that were taken: lines for entries at several tiers, dots for the others."""
    name = tasks[0].ranked_measures[-1]
    points: dict[str, list[tuple[float, float]]] = {}
    for board, entry in ((one, entry) for one in tasks for entry in one.competitors):
        if entry.budget is not None and entry.budget.used > 0:
            place = (entry.budget.used, board.value(entry.title, ALL, name).value)
            points.setdefault(entry.seeds[0].title, []).append(place)
    figure, [[axes]] = canvas(WIDTH, 300)
    lines = sorted((title for title, some in points.items() if len(some) > 1), key=lambda title: max(points[title])[1])
    for title, some in points.items():
        x, y = zip(*sorted(some), strict=True)
        known = title in lines[:MOST_LINES]
        style = mark(lines.index(title)) if known else None
        color, dashes = (style.color, style.linestyle) if style is not None else (MUTED, "-")
        label = title if known else None
        axes.plot(x, y, marker="o", markersize=3, linewidth=1.4, color=color, linestyle=dashes, label=label)
    floor = tasks[0].evaluator.floor[ALL].get(name)
    least = min((y for some in points.values() for _, y in some), default=0.0)
    if floor is not None and floor > least / NEAR:
        axes.axhline(floor, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.set(xscale="log", yscale="log", xlabel="gradients per training example", ylabel=MEASURES[name].label)
    if lines:
        axes.legend(fontsize=8, frameon=False)
    return figure


def uncertainty_panel(
    reference: NDArray[np.floating], methods: Sequence[tuple[Mark, NDArray[np.floating]]], *, gaussian: bool
) -> Figure:
    """Draw histograms of the predictive entropy of class probabilities (n, C), or of the std of draws of y (n, S); the reference is filled."""
    if gaussian:
        values = [draws.std(axis=1) for draws in (reference, *(draws for _, draws in methods))]
        most, label = float(np.quantile(np.concatenate(values), 0.98)), "predictive standard deviation of y"
    else:
        values = [distances.entropy(probs) for probs in (reference, *(probs for _, probs in methods))]
        most, label = float(np.log(reference.shape[1])), "predictive entropy, nats"
    figure, [[axes]] = canvas(WIDTH, 240)
    edges = np.linspace(0, most, 21)
    filled, *shares = (np.histogram(one, edges)[0] / len(one) for one in values)
    axes.stairs(filled, edges, color=MUTED, fill=True, alpha=0.3, linewidth=0)
    for (line, _), share in zip(methods, shares, strict=True):
        axes.stairs(share, edges, color=line.color, linestyle=line.linestyle, linewidth=1.5, baseline=None)
    axes.set(xlim=(0, most), xlabel=label, ylabel="share of points")
    return figure


def calibration_panel(
    truth: NDArray[Any],
    reference: NDArray[np.floating],
    methods: Sequence[tuple[Mark, NDArray[np.floating]]],
    *,
    gaussian: bool,
) -> Figure:
    """Return a figure of how well predictions are calibrated; the dashed diagonal is perfect, the reference grey and broad.

    Of class probabilities: accuracy over confidence, in bins of equally many points. Of draws of y: the share of y inside
    central intervals, over their level.
    """
    curve = _coverage if gaussian else _accuracy_by_confidence
    names = ("level of the central interval", "share of y inside") if gaussian else ("confidence", "accuracy")
    figure, [[axes]] = canvas(WIDTH, WIDTH * 0.9)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1.005), aspect="equal", xlabel=names[0], ylabel=names[1])
    lines = [(4.0, REFERENCE, "-", reference), *((1.6, one.color, one.linestyle, values) for one, values in methods)]
    for width, color, style, values in lines:
        axes.plot(*curve(truth, values), color=color, linestyle=style, linewidth=width, marker="o", markersize=3)
    return figure


def _accuracy_by_confidence(label: NDArray[np.int64], probs: NDArray[np.floating]) -> Curve:
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == label
    bins = np.array_split(np.argsort(confidence, kind="stable"), BINS)
    return [confidence[rows].mean() for rows in bins], [right[rows].mean() for rows in bins]


def _coverage(truth: NDArray[np.floating], draws: NDArray[np.floating]) -> Curve:
    low, high = (np.quantile(draws, (1 + sign * LEVELS) / 2, axis=1) for sign in (-1, 1))
    return LEVELS, ((truth >= low) & (truth <= high)).mean(axis=1)


def _axis(name: str) -> str:
    about = MEASURES[name]
    return f"{about.label}{f', {about.unit}' if about.unit else ''} ({'more' if about.higher else 'less'} is better)"


MOST_CURVES = 5  # more curves cannot be told apart
MOST_NAMED = 4  # entries in a sentence


def write_board(board: FidelityBoards, out: Path) -> Path:
    """Write `board.json` (all numbers), `board.md` (all tables) and `index.html`; return the page's path."""
    write_json(out / "board.json", board.to_dict())
    write_bytes(out / "board.md", markdown(board).encode())
    write_bytes(out / "index.html", page(board).encode())
    return out / "index.html"


def markdown(board: FidelityBoards) -> str:
    tables = [
        *ranking_tables(board),
        usefulness_table(board.tasks),
        *(one for task in board.tasks for one in _tables(task)),
        *(one.table() for one in board.densities),
        refused_table(board),
    ]
    return "\n".join(to_markdown(table) for table in tables if table is not None)


@drawing()
def page(board: FidelityBoards) -> str:
    """Return the page: self-contained, everything that comes from files escaped."""
    names = [task.target.name for task in board.tasks]
    sections = [_section(task, alone=names.count(task.target.name) == 1) for task in board.tasks]
    found = leads(board) or [finding for one in board.densities for finding in one.findings]
    first, *others = found or ["How close do approximate posteriors come to that of Hamiltonian Monte Carlo?"]
    context = {
        "title": first.removesuffix("."),
        "leads": others,
        "rankings": ranking_tables(board),
        "useful": usefulness_table(board.tasks),
        "printed": final_ranking(board.tasks),
        "refused": refused_table(board),
        "budgets": _budget_panels(board),
        "sections": sections,
        "densities": board.densities,
        "by_target": [[sections[k] for k, one in enumerate(names) if one == name] for name in dict.fromkeys(names)],
    }
    return render("board.html.j2", context, package="retinabench.fidelity.leaderboard")


def leads(board: FidelityBoards) -> list[str]:
    """Return a sentence on each ranking: which entries may be the nearest, as far as differences are resolved."""
    found = []
    for division, ranking in board.divisions.items():
        titles = [entry.title for entry in ranking if entry.rank.best == 1]
        named = "; ".join(titles[:MOST_NAMED])  # a title may hold a comma
        more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
        tasks = f" on {ranking[0].tasks} tasks" if ranking[0].tasks > 1 else ""
        where = "" if division is None else f" ({division.label})"
        many = "is" if len(titles) == 1 else "may be"
        found.append(f"{len(titles)} of {len(ranking)} entries {many} the nearest{tasks}{where}: {named}{more}.")
    return found


def _tables(task: TaskBoard) -> list[Table]:
    """Return the tables of each group of points, then the ranked measures by strength of the corruption."""
    damaged = (*(strength_table(task, name) for name in task.ranked_measures), corruption_table(task))
    whole = [task_table(task, group) for group in groups_shown(task)]
    return whole + [table for table in damaged if table is not None]


def _section(task: TaskBoard, *, alone: bool) -> dict[str, Any]:
    """Return the content of the section of one task: its board figure, panels of curves with their legend, and its tables."""
    said = "Each entry's closeness to the reference, with 95 % intervals."
    svg = to_svg(board_figure(task), f"{_name(task)}-board", title=f"{task.target.title}: scores", description=said)
    caption = (
        "All test points, 95 % intervals. Green: one chain of the reference against the others. Dotted: the noise "
        "floor. Crosses: trivial submissions."
    )
    shown = [entry for entry in task.ordered if entry.kind != "trivial"][:MOST_CURVES]
    division = "" if alone or task.division is None else f" ({task.division.short})"
    return {
        "name": _name(task),
        "heading": task.target.title + division,
        "power": power_text(task),
        "board": task,
        "width": board_width(task),
        "scores": Panel("", svg, caption),
        "legend": [LegendEntry(entry.title, mark(k)) for k, entry in enumerate(shown)],
        "panels": list(_panels(task, shown)),
        "tables": _tables(task),
    }


def _budget_panels(board: FidelityBoards) -> list[Panel]:
    """Return a figure of the distance over the gradients for each task that has entries at several tiers."""
    panels = []
    for target in dict.fromkeys(task.target.name for task in board.tasks):
        tasks = [task for task in board.tasks if task.target.name == target]
        if len({task.division.tier for task in tasks if task.division is not None}) > 1:
            title, said = tasks[0].target.title, "The last ranked measure of each entry at each budget."
            heading = f"{title}: distance over gradients"
            svg = to_svg(budget_figure(tasks), f"{target}-budgets", title=heading, description=said)
            panels.append(Panel(title, svg))
    return panels


def _name(task: TaskBoard) -> str:
    """Return a name of the board of a task and division, for anchors and figures."""
    if task.division is None:
        return task.target.name
    return f"{task.target.name}-{task.division.track}-{task.division.tier or 'none'}"


def _panels(task: TaskBoard, shown: list[FidelityEntry]) -> Iterator[Panel]:
    """Yield the histograms and curves of each group; the first seed of an entry stands for it."""
    evaluator, groups, gaussian = task.evaluator, groups_shown(task), task.target.likelihood == "gaussian"
    truth, said = evaluator.truth, f"{task.target.title}, against the reference."
    for kind in ("uncertainty", "calibration") if truth is not None else ("uncertainty",):
        for group in groups[1:] or groups:
            rows = evaluator.resampling.groups[group]
            reference = evaluator.predictive[rows]
            values = [(mark(k), entry.seeds[0].values[rows]) for k, entry in enumerate(shown)]
            if kind == "uncertainty":
                figure = uncertainty_panel(reference, values, gaussian=gaussian)
            else:
                figure = calibration_panel(np.asarray(truth)[rows], reference, values, gaussian=gaussian)
            heading, name = f"{kind.capitalize()}: {group_label(group)}", f"{_name(task)}-{kind}-{group}"
            yield Panel(heading, to_svg(figure, name.replace(" ", "-"), title=heading, description=said))
