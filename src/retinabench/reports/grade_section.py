"""The section on grades of the pages of `report` and `clinic`."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from retinabench.metrics.grades import GradeScores
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.reports.grades import Seeds, confusion_table, scores_table, sets_table
from retinabench.reports.toolkit.figures import WIDTH, Line, Mark, Panel, canvas, draw_lines, light_grid, percent_axis


def curve_figure(lines: Mapping[str, tuple[Mark, GradeScores]]) -> Figure:
    figure, [[axes]] = canvas(WIDTH, 300)
    draw_lines(axes, [Line(mark, *one.curve.values()) for mark, one in lines.values()])
    axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel="error in grades of the retained")
    axes.set_ylim(bottom=0)
    percent_axis(axes.xaxis)
    light_grid(axes, "y")
    return figure


def grade_section(found: Mapping[str, Mapping[str, tuple[Mark, Seeds]]], leading: str = "") -> list[dict[str, object]]:
    """Return what the section of a page shows of each set: name of the set -> method -> its mark and seeds."""
    shown: list[dict[str, object]] = []
    for name, methods in found.items():
        known = {method: (mark, seeds) for method, (mark, seeds) in methods.items() if seeds}
        if not known:
            continue
        label = SET_LABELS[name]
        first = known.get(leading, next(iter(known.values())))[1][0]
        title = f"Error in grades, {label.lower()}"
        said = f"{title} images, as the expert reads more of them; the area under it is in the table."
        figure = curve_figure({method: (mark, seeds[0]) for method, (mark, seeds) in known.items()})
        shown.append(
            {
                "scores": scores_table(label, {method: seeds for method, (_, seeds) in known.items()}),
                "confusion": confusion_table(label, first),
                "sets": sets_table(label, first),
                "curve": Panel.of(figure, f"grades-{name}", title, said),
            }
        )
    return shown
