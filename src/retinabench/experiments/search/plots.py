"""The figures of a search: every trial as a line across all parameters, and the criterion over each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import MaxNLocator

from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.ranking import Trial, TrialRanking, short_names
from retinabench.experiments.search.space import Parameter
from retinabench.reports.toolkit.figures import BAD, GOOD, INK, MUTED, PAPER, canvas, light_grid, save

REST = "#b4b3ad"
MOST = 200  # trials in a figure; more only blacken it
LEAST = 620  # width that title and legend need
FLOOR = -0.11  # where trials without a value end, in shares of the criterion's axis
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HALO: list[AbstractPathEffect] = [withStroke(linewidth=3, foreground=PAPER)]


def write_figures(ranking: TrialRanking, folder: Path) -> list[Path]:
    """Write `parallel` and `marginals` as SVG and PNG; return the files."""
    return [
        file
        for name, figure in (("parallel", parallel(ranking)), ("marginals", marginals(ranking)))
        for file in save(figure, folder / name)
    ]


def parallel(ranking: TrialRanking) -> Figure:
    """Draw parallel coordinates: an axis per parameter on its own scale, the criterion's at the right."""
    parameters, last = list(ranking.space), len(ranking.space)
    figure, [[axes]] = canvas(max(LEAST, 150 + 125 * last), 400, text=11)
    low, high = _reach(ranking)
    for x, parameter in enumerate(parameters):
        _axis(axes, x, short_names(ranking.space)[x], _ticks(parameter, 0.08))
    steps = MaxNLocator(5).tick_values(low, high)
    shares = [((v - low) / (high - low), f"{v:.6g}") for v in steps if low <= v <= high]
    _axis(axes, last, "criterion", shares, right=True)
    for row, (color, width, style, order) in _looks(ranking):
        places = [_place(p, row) for p in parameters]
        known = math.isfinite(row.value)
        places.append((row.value - low) / (high - low) if known else FLOOR)
        axes.plot(range(last + 1), places, color=color, linewidth=width, linestyle=style, zorder=order)
        if not known:
            axes.plot([last], [FLOOR], marker="x", markersize=7, color=BAD, zorder=order, clip_on=False)
    axes.set(xlim=(-0.35, last + 0.45), ylim=(FLOOR - 0.04, 1.09))
    axes.axis("off")
    _dress(figure, ranking, lines=True)
    return figure


def marginals(ranking: TrialRanking) -> Figure:
    """Draw the criterion over each parameter, a panel for each."""
    columns = min(4, len(ranking.space))
    rows = math.ceil(len(ranking.space) / columns)
    figure, grid = canvas(max(LEAST, 70 + 215 * columns), 60 + 205 * rows, rows, columns, text=11)
    low, high = _reach(ranking)
    panels = [axes for line in grid for axes in line]
    names = short_names(ranking.space)
    for axes in panels[len(names) :]:
        axes.axis("off")
    for number, (axes, parameter) in enumerate(zip(panels, ranking.space, strict=False)):
        floor = low + FLOOR * (high - low)
        for row, (color, width, _, order) in _looks(ranking):
            known = math.isfinite(row.value)
            dot: dict[str, Any] = {"color": color, "mec": color, "zorder": order, "clip_on": False}
            dot |= {"marker": "o" if known else "x", "mew": 0.8 if known else 1.5}
            dot |= {"ms": 3.5 + 1.4 * width if known else 6.5, "mfc": PAPER if row.stopped else color}
            axes.plot([_place(parameter, row)], [row.value if known else floor], **dot)
        places, texts = zip(*_ticks(parameter, 0.24), strict=True)
        axes.set_xticks(places, texts)
        margin = 0.04 * (high - low)
        axes.set(
            xlim=(-0.04, 1.04),
            ylim=(floor - margin, high + margin),
            xlabel=names[number],
        )
        axes.yaxis.set_major_locator(MaxNLocator(5))
        light_grid(axes, "y")
        if number % columns:
            axes.tick_params(labelleft=False)
    _dress(figure, ranking, lines=False)
    return figure


def _looks(ranking: TrialRanking) -> list[tuple[Trial, tuple[str, float, Any, int]]]:
    """Return what is drawn, with colour, line width, line pattern and height: the best tenth, three to ten, stand out.

    Of very many trials the best are drawn, and some of those without a value.
    """
    top = _top(ranking)
    known = [row for row in ranking.rows if math.isfinite(row.value)][:MOST]
    lost = [row for row in ranking.rows if not math.isfinite(row.value)][: MOST // 8]
    return [(row, _look(place, row, top)) for place, row in enumerate([*known, *lost])]


def _look(place: int, row: Trial, top: int) -> tuple[str, float, Any, int]:
    if not math.isfinite(row.value):
        return BAD, 0.9, (0, (3, 3)), 3
    if place < top:
        return (GOOD, 2.8, "-", 6) if place == 0 else (GOOD, 1.3, "-", 5)
    return REST, 0.8, (0, (1.2, 1.6)) if row.stopped else "-", 2


def _top(ranking: TrialRanking) -> int:
    ranked = sum(row.ranked for row in ranking.rows)
    return min(ranked, max(3, min(ranked // 10, 10)))


def _reach(ranking: TrialRanking) -> tuple[float, float]:
    """Return the ends of the criterion's axis."""
    known = [row.value for row in ranking.rows if math.isfinite(row.value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if high - low < 1e-9:
        return low - 0.01, high + 0.01
    room = 0.03 * (high - low)
    return low - room, high + room


def _place(parameter: Parameter, row: Trial) -> float:
    """Return where a trial lies on a parameter's axis, from 0 to 1; those of one choice stand side by side."""
    place = parameter.position(row.values[parameter.key])
    if not parameter.choices:
        return place
    golden = (math.sqrt(5) - 1) / 2
    return place + ((row.trial * golden) % 1 - 0.5) * 0.6 / len(parameter.choices)


def _axis(axes: Axes, x: int, name: str, ticks: Sequence[tuple[float, str]], right: bool = False) -> None:
    axes.plot([x, x], [0, 1], color=MUTED, linewidth=0.9, zorder=4)
    axes.text(x, 1.06, name, ha="center", va="bottom", fontsize=11, color=INK)
    side, towards = ("left", 0.05) if right else ("right", -0.05)
    for y, text in ticks:
        axes.plot([x, x + towards * 0.6], [y, y], color=MUTED, linewidth=0.9, zorder=4)
        said = axes.text(x + towards, y, text, ha=side, va="center", fontsize=9, color=MUTED, zorder=7)
        said.set_path_effects(HALO)


def _ticks(parameter: Parameter, gap: float) -> list[tuple[float, str]]:
    """Return (position, text) of round values at least `gap` apart inside the range, or of all choices."""
    if parameter.choices:
        return [(parameter.position(choice), _said(choice)) for choice in parameter.choices]
    low, high = parameter.low, parameter.high
    if parameter.scale == "linear":
        values = [float(v) for v in MaxNLocator(4, integer=parameter.integer).tick_values(low, high)]
    elif parameter.scale == "log":
        values = _round_values(low, high)
    else:
        values = [1 - value for value in _round_values(1 - high, 1 - low)]
    slack = 1e-9 * (high - low)
    kept: dict[float, str] = {}
    for value in (value for value in values if low - slack <= value <= high + slack):
        place = parameter.position(min(max(value, low), high))
        if all(abs(place - other) >= gap for other in kept):
            kept[place] = _said(value)
    return sorted(kept.items()) if len(kept) > 1 else [(0.0, _said(low)), (1.0, _said(high))]


def _round_values(low: float, high: float) -> list[float]:
    """Return round values around a logarithmic range, the roundest first."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [float(f"{digit}e{power}") for digit in (1, 5, 2, 3, 4) for power in powers]


def _said(value: Any) -> str:
    """Put a value into few characters."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value).lower().replace("_", "\n")
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:.6g}"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    digits = f"{value / 10**power:.4g}"
    return f"{'' if digits == '1' else f'{digits}·'}10{str(power).translate(SUPERSCRIPTS)}"


def _dress(figure: Figure, ranking: TrialRanking, *, lines: bool) -> None:
    """Write the title, and below the figure what the colours mean, with counts; `lines` or dots."""
    ranked = [row for row in ranking.rows if row.ranked]
    stopped = sum(row.stopped and math.isfinite(row.value) for row in ranking.rows)
    top, lost = _top(ranking), sum(not math.isfinite(row.value) for row in ranking.rows)
    best = f"best: trial {ranked[0].trial}, {ranked[0].value:.4f}" if ranked else ""
    others = f"{len(ranked) - top} others{f', the best {MOST - top} drawn' if len(ranked) > MOST else ''}"
    entries: list[tuple[bool, str, str, float, Any, str, str]] = [
        (bool(ranked), best, GOOD, 2.8, "-", "o", GOOD),
        (top > 1, f"next {top - 1}", GOOD, 1.3, "-", "o", GOOD),
        (len(ranked) > top, others, REST, 1.2, "-", "o", REST),
        (stopped > 0, f"{stopped} stopped early", REST, 1.2, (0, (1.2, 1.6)), "o", PAPER),
        (lost > 0, f"{lost} without a value", BAD, 1.2, (0, (3, 3)), "x", BAD),
    ]
    handles = []
    for shown, label, color, width, style, marker, face in entries:
        if shown:
            look: dict[str, Any] = {"linestyle": style, "linewidth": width}
            if not lines or marker == "x":
                look |= {"marker": marker, "markerfacecolor": face, "markersize": 4 + 1.4 * width}
            handles.append(
                Line2D([], [], color=color, label=label, **look | ({} if lines else {"linestyle": ""}))
            )
    words = sum(len(label) for shown, label, *_ in entries if shown)
    columns = len(handles) if words < 72 else 3
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=10)
    figure.suptitle(
        f"{CRITERIA[ranking.criterion].title} ({ranking.rules})", fontsize=12, color=INK, x=0.012, ha="left"
    )
    layout = figure.get_layout_engine()
    assert isinstance(layout, ConstrainedLayoutEngine)
    layout.set(w_pad=0.08, h_pad=0.08, wspace=0.06, hspace=0.06)
