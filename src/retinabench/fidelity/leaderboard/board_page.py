"""The board as files: `board.json` (all numbers), `board.md` (all tables), `index.html` (one self-contained page)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.fidelity.leaderboard import figures, tables
from retinabench.fidelity.leaderboard.board import Line, board
from retinabench.fidelity.leaderboard.board import Sheet as TaskSheet
from retinabench.fidelity.scoring.measures import RANKED
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.fidelity.targets.data import labels
from retinabench.reports.evaluation.page import fill
from retinabench.reports.evaluation.tables import Cell, Column, Row, Sheet
from retinabench.reports.toolkit.figures import to_svg
from retinabench.reports.toolkit.style import mark

MOST_CURVES = 5  # more cannot be told apart
TERMS = (
    ("Agreement", "Share of test points at which the method and the reference name the same class."),
    ("Total variation", "Mean over points of ½ Σ |p − q|: 0 equal, 1 disjoint."),
    ("Wasserstein", "Mean over points of the distance between draws of y, in standard deviations of y. The "
     "competition's 'W2' is minus the first order one (w2_kit); its printed formula lacks a 1/S (as printed)."),
    ("÷ ceiling", "The value over that of one chain of the reference against the others: 1 is another sampler of the "
     "same posterior. More than 1 of an agreement, or less of a distance, is possible: all chains together have less "
     "noise than one."),
    ("Noise floor", "What a perfect submission would score, because the reference, and 1,000 draws of y, are finite."),
    ("Epistemic", "Mutual information of class and weights, from posterior samples: rank correlation with the "
     "reference's, and mean absolute difference in nats. Disagreement gap: how much more or less often two samples of "
     "the method name different classes than two of the reference."),
    ("Miscalibration", "Of the confidence, with the reference's probabilities as truth."),
    ("Decision regret", "What acting on the predictions costs beyond acting on the reference, if the reference is right, "
     "at the costs of the target's decision: by default 4 for a missed patient, 1 for a needless referral."),
    ("Referral area", "Mean accuracy of referable or not, over all shares of the patients handed to the expert, the "
     "uncertain ones first."),
    ("Budget", "Gradient evaluations per training example that were counted; predictions are not."),
)  # fmt: skip


def write_board(sheets: Sequence[TaskSheet], out: Path) -> tuple[dict[str, Any], Path]:
    """Write the three files; return the board's record and the page's path."""
    found = board(sheets)
    write_json(out / "board.json", found)
    write_bytes(out / "board.md", board_markdown(found).encode())
    write_bytes(out / "index.html", board_page(found, sheets).encode())
    return found, out / "index.html"


def board_markdown(found: Mapping[str, Any]) -> str:
    """Return all tables, the ranking first."""
    grids = [tables.ranking_grid(found), *(grid for task in found["tasks"] for grid in task_grids(task))]
    return "\n".join(tables.markdown(grid) for grid in grids if grid is not None)


def task_grids(task: Mapping[str, Any]) -> Iterator[tables.Grid]:
    """Yield the tables of one task: each group of points, then the ranked measures by strength of the corruption."""
    for group in tables.shown_groups(task):
        yield tables.task_grid(task, group)
    for name in RANKED[task["likelihood"]]:
        if (grid := tables.strength_grid(task, name)) is not None:
            yield grid


def board_page(found: Mapping[str, Any], sheets: Sequence[TaskSheet]) -> str:
    """Return the page: everything that comes from files is escaped, figures stand inside, no script."""
    ranking = tables.ranking_grid(found)
    return fill(
        "fidelity.html.j2",
        {
            "title": "How close do they come to the posterior that Hamiltonian Monte Carlo finds?",
            "standfirst": "Entries: "
            + ", ".join(f"{len(sheet.entries)} on {sheet.evaluator.target.name}" for sheet in sheets),
            "ranking": _sheet(ranking) if ranking else None,
            "tasks": [_task(task, sheet) for task, sheet in zip(found["tasks"], sheets, strict=True)],
            "terms": TERMS,
        },
    )


def _task(task: Mapping[str, Any], sheet: TaskSheet) -> dict[str, Any]:
    shown = _shown(task, sheet)
    grids = list(task_grids(task))
    reference = task["reference"]
    svg = to_svg(
        figures.board_figure(task),
        f"{task['task']}-board",
        title=f"{task['title']}: scores",
        description="Each entry's closeness to the reference, with 95 % intervals.",
    )
    return {
        "name": task["task"],
        "title": task["title"],
        "width": figures.board_width(task),
        "passed": reference["passed"],
        "why": "; ".join(reference["why"]),
        "board": {
            "heading": "",
            "svg": svg,
            "caption": "All test points, 95 % intervals. Green: one chain of the reference against the others. Dotted: "
            "the noise floor. Crosses: trivial submissions.",
        },
        "legend": [{"name": line.title, "swatch": mark(k).swatch} for k, line in enumerate(shown)],
        "panels": list(_figure_one(task, sheet, shown)),
        "tables": [{"sheet": _sheet(grid), "note": grid.note} for grid in grids],
    }


def _shown(task: Mapping[str, Any], sheet: TaskSheet) -> list[Line]:
    """Return the lines whose curves are drawn: the first ones of the table."""
    order = [one["title"] for one in tables.ordered(task["entries"], RANKED[task["likelihood"]][0])]
    return sorted(sheet.entries, key=lambda line: order.index(line.title))[:MOST_CURVES]


def _figure_one(task: Mapping[str, Any], sheet: TaskSheet, shown: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield the histograms and curves of each group; the first seed of an entry stands for it."""
    evaluator = sheet.evaluator
    truth, gaussian = labels(evaluator.data)[1], task["likelihood"] == "gaussian"
    groups = tables.shown_groups(task)
    reference = evaluator.reference.draws if gaussian else evaluator.reference.probs
    for kind in ("spread", "calibration"):
        for group in groups[1:] or groups:
            rows = evaluator.resampling.groups[group]
            values = [
                (mark(k), np.asarray(line.seeds[0].draws if gaussian else line.seeds[0].probs)[rows])
                for k, line in enumerate(shown)
            ]
            if kind == "spread":
                draw = figures.deviation_panel if gaussian else figures.entropy_panel
                figure, what = draw(reference[rows], values), "How sure"
            else:
                curves = figures.coverage_panel if gaussian else figures.calibration_panel
                figure, what = curves(truth[rows], reference[rows], values), "How right"
            heading = f"{what}: {'all test points' if group == ALL else group.replace('_', '-')}"
            name = f"{task['task']}-{kind}-{group}".replace(" ", "-")
            svg = to_svg(figure, name, title=heading, description=f"{task['title']}, against the reference.")
            yield {"heading": heading, "svg": svg, "caption": ""}


def _sheet(grid: tables.Grid) -> Sheet:
    """Turn a table into one of the page."""
    rows = [Row(row.label, [Cell(_cell(cell)) for cell in row.cells], row.control) for row in grid.rows]
    return Sheet(grid.caption, [Column("", True), *(Column(column) for column in grid.columns)], rows)


def _cell(cell: tables.Cell) -> Markup:
    if not cell.below:
        return escape(cell.text)
    return Markup('{}<span class="interval">{}</span>').format(cell.text, cell.below)
