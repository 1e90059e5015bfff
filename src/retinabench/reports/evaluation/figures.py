"""The figures of a report, and the section on grades that `clinic` shows as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from retinabench.metrics.clinical.screening_table import GOALS
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.referral_curves import values_on_grid
from retinabench.metrics.rejection import REMOVED, Rejections
from retinabench.metrics.weighted_images import Bools, Floats
from retinabench.reports.evaluation.evaluation import BINS, FEWEST, GRID, MOST_COLORS, Evaluation, SetPredictions
from retinabench.reports.grades import Seeds, confusion_table, scores_table, sets_table
from retinabench.reports.toolkit import figures as style
from retinabench.reports.toolkit.figures import Line, Mark, Panel
from retinabench.reports.toolkit.tables import percent, plain

HEIGHT = 300
NHS = (round(1 - GOALS["nhs"].specificity, 10), GOALS["nhs"].sensitivity)
"""False-positive rate and sensitivity of the NHS screening standard: specificity 80 %, sensitivity 85 %."""
Control = tuple[str, Floats, Floats]  # label, x and y of a grey reference curve
LABELS = {"accuracy": "accuracy", "auroc": "AUROC", "nll": "NLL (nats)"}


def referral_panel(
    lines: Sequence[Line], controls: Sequence[Control], *, label: str, limits: tuple[float, float], referred: float
) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
    axes.axvline(referred, color=style.FAINT, linewidth=1.2, zorder=1)
    _draw_controls(axes, controls, limits)
    style.draw_lines(axes, lines)
    axes.set(xlim=(0, 1), ylim=limits, xlabel="referred to the expert", ylabel=label)
    style.percent_axis(axes.xaxis)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    style.light_grid(axes, "y")
    return figure


def roc_panel(lines: Sequence[Line]) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, style.WIDTH)
    style.diagonal(axes)
    style.draw_lines(axes, lines)
    style.goal_region(axes, *NHS, markersize=6)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="1 − specificity", ylabel="sensitivity", aspect="equal")
    axes.set(xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    return figure


def histogram_panel(columns: Mapping[str, SetPredictions], *, limits: tuple[float, float], label: str) -> Figure:
    """Draw uncertainty by grade (rows) and set (columns), correct above the axis, incorrect below, each half scaled to its own tallest bar."""
    graded = any(column.grade is not None for column in columns.values())
    rows = range(5 if graded else 1)
    height = 56 + (80 if graded else 170) * len(rows)
    figure, grid = style.canvas(style.WIDTH, height, len(rows), len(columns), sharex=True)
    edges = np.linspace(*limits, 25)
    for number, (name, column) in enumerate(columns.items()):
        known = column.grade if column.grade is not None else np.full(len(column), -1 if graded else 0)
        for grade in rows:
            _draw_histogram(
                grid[grade][number], column.uncertainty[known == grade], column.correct[known == grade], edges
            )
            if graded and number == 0:
                grid[grade][0].set_ylabel(f"grade {grade}", rotation=0, ha="right", va="center", fontsize=style.TEXT)
        grid[0][number].set_title(SET_LABELS[name], fontsize=style.TEXT, color=style.INK, loc="left")
        grid[-1][number].set_xlabel(label, fontsize=style.TEXT)
        for axes in (line[number] for line in grid[:-1]):
            axes.tick_params(bottom=False)
    return figure


def reliability_panel(points: Sequence[tuple[str, Floats, Floats, Floats, Floats]], counts: Sequence[Floats]) -> Figure:
    """Draw observed against predicted share of referable images. Shapes: `points` (B,)."""
    figure, [[axes]] = style.canvas(style.WIDTH, style.WIDTH)
    style.diagonal(axes)
    edges = np.linspace(0, 1, 21)
    for (color, x, y, low, high), count in zip(points, counts, strict=True):
        share = count / max(count.sum(), 1)
        axes.stairs(0.25 * share, edges, color=color, fill=True, alpha=0.25, linewidth=0)
        axes.errorbar(
            x, y, yerr=np.abs(np.stack([y - low, high - y])), color=color, linewidth=1.3,
            elinewidth=0.9, marker="o" if color == style.GOOD else "s", markersize=4, capsize=0,
        )  # fmt: skip
    axes.set(
        xlim=(0, 1), ylim=(0, 1.005), xlabel="predicted P(referable)", ylabel="observed share referable",
        aspect="equal",
    )  # fmt: skip
    axes.set(xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    return figure


def _draw_controls(axes: Axes, controls: Sequence[Control], limits: tuple[float, float]) -> None:
    """Draw the controls; their labels stand outside at the height of their ends, at least a line apart."""
    ends = []
    for label, *curve in controls:
        x, y = map(style.thin, curve)
        axes.plot(x, y, color=style.MUTED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=2)
        if (known := y[np.isfinite(y)]).size:
            share = (known[-1] - limits[0]) / (limits[1] - limits[0])
            ends.append((float(np.clip(share, 0.02, 0.98)), label))
    lowest = -1.0
    for share, label in sorted(ends):
        lowest = max(share, lowest + 0.065)
        axes.text(1.015, lowest, label, transform=axes.transAxes, fontsize=style.TEXT, color=style.MUTED, va="center")


def _draw_histogram(axes: Axes, values: Floats, correct: Bools, edges: Floats) -> None:
    right, _ = np.histogram(values[correct], edges)
    wrong, _ = np.histogram(values[~correct], edges)
    axes.stairs(right / max(right.max(), 1), edges, color=style.GOOD, fill=True, alpha=0.8, linewidth=0)
    axes.stairs(-wrong / max(wrong.max(), 1), edges, color=style.BAD, fill=True, alpha=0.9, linewidth=0)
    axes.axhline(0, color=style.MUTED, linewidth=0.6)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(-1.25, 1.25), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_visible(False)
    for height, count, color in ((0.35, right.sum(), style.GOOD), (-0.35, wrong.sum(), style.BAD)):
        place = axes.get_yaxis_transform()
        axes.text(1.02, height, f"{int(count)}", transform=place, fontsize=style.TEXT, color=color, va="center")


def _lines(evaluation: Evaluation, name: str, key: str) -> list[Line]:
    lines = []
    for i, mark in enumerate(evaluation.marks):
        band = evaluation.curves.get((i, name, key))
        if band is not None and np.isfinite(band.y).any():
            shown = len(evaluation.methods) <= MOST_COLORS or i == evaluation.leader
            lines.append(Line(mark, band.x, band.y, *((band.low, band.high) if shown else (None, None))))
    return lines


def _composition(evaluation: Evaluation, name: str) -> str:
    case = evaluation.first(evaluation.leader, name)
    if case is None:
        return ""
    parts = []
    for score in ("accuracy", "sensitivity", "specificity"):
        before, after = evaluation.lead_value(name, score), evaluation.lead_value(name, evaluation.at(score))
        parts.append(f"{score} {plain(before.value)} → {plain(after.value)}")
    share = evaluation.lead_value(name, evaluation.at("prevalence")).value
    parts.append(f"referable {percent(float(case.label.mean()))} → {percent(share)}")
    return f"“{evaluation.leading}”, nothing referred → {percent(evaluation.settings.referred)} referred: {', '.join(parts)}."


def roc_panels(evaluation: Evaluation) -> list[Panel]:
    out = []
    for name in evaluation.sets:
        lines = _lines(evaluation, name, "roc")
        if lines:
            areas = "; ".join(
                f"{method.name} {plain(evaluation.get(i, name, 'auroc').value, 3)}"
                for i, method in enumerate(evaluation.methods)
                if (i, name) in evaluation.cases
            )
            said = f"Area under the curve: {areas}. The NHS standard lies at a false-positive rate of {NHS[0]} and a sensitivity of {NHS[1]}."
            title = f"ROC curves, {SET_LABELS[name].lower()}"
            out.append(Panel.of(roc_panel(lines), f"roc-{name}", SET_LABELS[name], said, title))
        else:
            none = "No ROC curve: this set has images of one class only."
            out.append(Panel(SET_LABELS[name], Markup(""), none))
    return out


def referral_panels(evaluation: Evaluation) -> list[tuple[str, list[Panel]]]:
    headings = {"accuracy": "Accuracy", "auroc": "AUROC", "nll": "NLL, lower is better"}
    return [(heading, _referral_panels(evaluation, metric, evaluation.sets)) for metric, heading in headings.items()]


def lead_panel(evaluation: Evaluation) -> Panel | None:
    name = evaluation.domains[-1]
    [panel] = _referral_panels(evaluation, "accuracy", [name], "lead")
    which = "shifted images" if name == "shifted" else "images"
    return replace(panel, heading=f"Referral of the most uncertain {which}") if panel.svg else None


def _referral_panels(evaluation: Evaluation, metric: str, sets: Sequence[str], figure_id: str = "") -> list[Panel]:
    lines = {name: _lines(evaluation, name, metric) for name in sets}
    controls = {name: _controls(evaluation, name, metric) for name in sets}
    limits, label = _limits(metric, lines, controls), LABELS[metric]
    panels = []
    for name in sets:
        if not lines[name]:
            of_either = " of either class" if metric == "auroc" else ""
            caption = f"No {label} curve: fewer than ten images{of_either}."
            panels.append(Panel(SET_LABELS[name], Markup(""), caption))
            continue
        referred = evaluation.settings.referred
        figure = referral_panel(lines[name], controls[name], label=label, limits=limits, referred=referred)
        title = f"{label} of the retained images against the share referred, {SET_LABELS[name].lower()}"
        at = round(referred * (len(GRID) - 1))
        found = [(e.name, evaluation.curves.get((i, name, metric))) for i, e in enumerate(evaluation.methods)]
        values = "; ".join(f"{who} {plain(float(band.y[at]), 3)}" for who, band in found if band is not None)
        said = f"With {percent(referred)} referred: {values}."
        caption = _composition(evaluation, name) if metric == "accuracy" else ""
        own = figure_id or f"referral-{metric}-{name}"
        panels.append(Panel.of(figure, own, SET_LABELS[name], said, title, caption))
    return panels


def _controls(evaluation: Evaluation, name: str, metric: str) -> list[Control]:
    """Return random referral (its expectation) and oracle referral with the predictions of the leading method."""
    cases = evaluation.cases.get((evaluation.leader, name))
    if not cases:
        return []
    start = evaluation.get(evaluation.leader, name, metric).value
    curves = [values_on_grid(case.oracle.weighted(), GRID, FEWEST, [metric])[metric] for case in cases]
    oracle = np.mean(curves, axis=0)
    return [("random", GRID, np.where(GRID < 1, start, np.nan)), ("oracle", GRID, oracle)]


def _limits(metric: str, lines: dict[str, list[Line]], controls: dict[str, list[Control]]) -> tuple[float, float]:
    """Return one range for all sets, so that they can be compared by eye; it holds the lines, not the bands."""
    seen = [line.y[: int(0.8 * len(GRID))] for group in lines.values() for line in group]
    seen += [values[:1] for group in controls.values() for *_, values in group]
    values = np.concatenate(seen) if seen else np.empty(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return (0.0, 1.0)
    if metric == "nll":
        return (0.0, float(values.max()) * 1.12)
    low = min(float(values.min()), 0.98)
    return (max(0.0, low - 0.12 * (1 - low) - 0.01), 1.004)


def histogram_panels(evaluation: Evaluation) -> list[Panel]:
    panels = []
    for i, method in enumerate(evaluation.methods):
        found = {name: case for name in evaluation.domains if (case := evaluation.first(i, name)) is not None}
        if not found:
            continue
        kind = next(iter(found.values())).uncertainty_name
        label = {"own": "own uncertainty", "total": "entropy (nats)"}.get(kind, kind.replace("_", " "))
        low, high = 0.0, float(np.log(2))  # of an entropy
        if kind not in ("total", "aleatoric"):
            everything = np.concatenate([case.uncertainty for case in found.values()])
            low, high = float(everything.min()), float(everything.max())
        limits = (low, high) if high > low else (low - 0.5, low + 0.5)
        figure = histogram_panel(found, limits=limits, label=label)
        errors = "; ".join(
            f"{SET_LABELS[n].lower()}: {int((~c.correct).sum())} of {len(c)} incorrect, their median uncertainty {_median(c.uncertainty[~c.correct])} against {_median(c.uncertainty[c.correct])} of the correct"
            for n, c in found.items()
        )
        title = f"Uncertainty of {method.name} by grade"
        panels.append(Panel.of(figure, f"histogram-{i}", method.name, errors, title))
    return panels


def _median(values: Floats) -> str:
    return plain(float(np.median(values)), 2) if values.size else "none"


def reliability_panels(evaluation: Evaluation) -> list[Panel]:
    colors = {"in_domain": style.GOOD, "shifted": style.BAD}
    panels = []
    for i, method in enumerate(evaluation.methods):
        places, counts, said = [], [], []
        for name, color in colors.items():
            case, band = evaluation.first(i, name), evaluation.curves.get((i, name, "observed"))
            if case is None or band is None:
                continue
            total = np.bincount(case.bins, minlength=BINS)
            filled = total > 0
            x = np.bincount(case.bins, case.prob, BINS)[filled] / total[filled]
            places.append((color, x, band.y[filled], band.low[filled], band.high[filled]))
            counts.append(np.histogram(case.prob, np.linspace(0, 1, 21))[0].astype(float))
            said.append(
                f"{SET_LABELS[name].lower()}: predicted {case.prob.mean():.2f} on average, observed {case.label.mean():.2f}"
            )
        if places:
            figure, title = reliability_panel(places, counts), f"Reliability of {method.name}, positive class"
            panels.append(Panel.of(figure, f"reliability-{i}", method.name, "; ".join(said), title))
    return panels


def rejection_panel(one: Rejections, name: str, figure_id: str) -> Panel:
    lines = [Line(style.mark(number), REMOVED, each.curve) for number, each in enumerate(one.uncertainties.values())]
    low, high = one.random
    least = min(float(low.min()), *(float(line.y.min()) for line in lines))
    figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
    axes.fill_between(REMOVED, low, high, color=style.FAINT, linewidth=0)
    limits = (least - 0.1 * (1 - least) - 1e-3, 1 + 0.02 * (1 - least))
    _draw_controls(axes, [("random", REMOVED, (low + high) / 2), ("oracle", REMOVED, one.oracle_curve)], limits)
    style.draw_lines(axes, lines)
    axes.set(xlim=(0, 1), ylim=limits, xlabel="removed, the most uncertain first", ylabel="accuracy of the rest")
    style.percent_axis(axes.xaxis)
    style.light_grid(axes, "y")
    said = "; ".join(f"{key}: RC-Index {plain(each.index, 4)}" for key, each in one.uncertainties.items())
    title = f"Accuracy of the retained images by uncertainty, {SET_LABELS[name].lower()}"
    return Panel.of(figure, figure_id, SET_LABELS[name], said, title)


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
        figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
        style.draw_lines(axes, [Line(mark, *seeds[0].curve.values()) for mark, seeds in known.values()])
        axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel="error in grades of the retained")
        axes.set_ylim(bottom=0)
        style.percent_axis(axes.xaxis)
        style.light_grid(axes, "y")
        scores = scores_table(label, {method: seeds for method, (_, seeds) in known.items()})
        curve = Panel.of(figure, f"grades-{name}", title, said)
        tables = {"confusion": confusion_table(label, first), "sets": sets_table(label, first)}
        shown.append({"scores": scores, "curve": curve, **tables})
    return shown
