"""The figures of an examination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from retinabench.concepts.examinees import SYNTHETIC
from retinabench.concepts.inference.unpredictability import GRID, Performance, Reading, posterior
from retinabench.concepts.questioning.examination import ConceptResult, Examination
from retinabench.concepts.questioning.strategy_comparison import (
    StrategyComparison,
    StrategyCourse,
    compare_strategies,
)
from retinabench.concepts.report.snapshot import Snapshot
from retinabench.core.errors import printable
from retinabench.core.files import write_json
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import json_content
from retinabench.reports.toolkit.figures import (
    BAD,
    FAINT,
    GOOD,
    HUES,
    INK,
    MUTED,
    PAPER,
    TEXT,
    WIDTH,
    Floats,
    Line,
    Mark,
    canvas,
    draw_lines,
    light_grid,
    mark,
    math_free,
    save,
)
from retinabench.reports.toolkit.number_format import Quantity


@dataclass(frozen=True)
class RateMark:
    """A rate in its colour; an undefined value draws its interval alone."""

    color: str
    quantity: Quantity


Parts = tuple[Floats, Floats, Floats, Floats]

"""Counts (100,), and grid, mean and std (101,) of a performance panel."""

REGIONS = (("TN", GOOD), ("FP", BAD), ("FN", BAD), ("TP", GOOD))

HEIGHT = 270


def performance_panel(
    bins: Floats, grid: Floats, mean: Floats, sd: Floats, *, limits: tuple[float, float] | None = None
) -> Figure:
    """Return a figure of `draw_performance` alone."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    draw_performance(axes, bins, grid, mean, sd, limits=limits)
    return figure


def draw_performance(
    axes: Axes,
    bins: Floats,
    grid: Floats,
    mean: Floats,
    sd: Floats,
    *,
    limits: tuple[float, float] | None = None,
) -> None:
    """Draw the Gaussian process of one concept over its four regions: mean, band of 2 sd, and the observed counts."""
    low, top = limits or limits_of(bins, mean, sd)
    for number, (name, color) in enumerate(REGIONS):
        axes.axvspan(number / 4, (number + 1) / 4, color=color, alpha=0.07, linewidth=0)
        place = axes.get_xaxis_transform()
        axes.text(
            number / 4 + 0.125,
            1.02,
            name,
            transform=place,
            color=color,
            fontsize=TEXT,
            ha="center",
            va="bottom",
        )
    axes.axvline(0.5, color=MUTED, linewidth=0.7)
    axes.axhline(0, color=FAINT, linewidth=0.7, zorder=1)
    axes.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=HUES[0], alpha=0.22, linewidth=0, zorder=2)
    axes.plot(grid, mean, color=HUES[0], zorder=3)
    seen = np.flatnonzero(bins)
    axes.plot(
        (seen + 0.5) / 100, bins[seen], linestyle="none", marker="o", markersize=3.4, color=INK, zorder=4
    )
    axes.set(xlim=(0, 1), ylim=(1.06 * low, 1.06 * top), ylabel="answers")
    axes.set_xticks([0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1])
    axes.set_xticklabels(["0", "", "½", "", "1 | 0", "", "½", "", "1"])
    axes.set_xlabel("P(yes), absent  |  P(yes), present")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def limits_of(bins: Floats, mean: Floats, sd: Floats) -> tuple[float, float]:
    """Return the range that a performance panel needs."""
    return min(float((mean - 2 * sd).min()), 0.0), max(float(bins.max()), float((mean + 2 * sd).max()), 1.0)


def progress_panel(lines: Sequence[Line]) -> Figure:
    """Return a figure of `draw_progress` alone."""
    figure, [[axes]] = canvas(WIDTH, 1.15 * HEIGHT)
    draw_progress(axes, lines)
    return figure


def course(style: Mark, asked: Floats, one: StrategyCourse) -> Line:
    """Return the line of a strategy."""
    mean, low, high = (np.asarray(values, np.float64) for values in (one.mean, one.low, one.high))
    return Line(style, asked, mean, low, high)


def draw_progress(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the mean uncertainty of each strategy against the number of questions, with the band over repetitions."""
    draw_lines(axes, lines, alpha=0.12)
    lowest, highest = min(line.y.min() for line in lines), max(line.y.max() for line in lines)
    margin = 0.06 * (highest - lowest) + 0.01
    axes.set(xlim=(0, None), ylim=(lowest - margin, highest + margin))
    axes.set(xlabel="questions", ylabel="mean uncertainty")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    light_grid(axes, "y")


def interval_panel(rows: Sequence[tuple[str, Sequence[RateMark]]]) -> Figure:
    """Draw sensitivity and specificity of every concept as dots with their intervals."""
    figure, [[axes]] = canvas(WIDTH, 56 + 40 * len(rows))
    for number, (_, rates) in enumerate(rows):
        for offset, rate in zip((-0.15, 0.15), rates, strict=True):
            known, place = rate.quantity.defined, number + offset
            axes.plot(
                [rate.quantity.low, rate.quantity.high], [place, place], color=rate.color, linewidth=2,
                alpha=1 if known else 0.35, linestyle="-" if known else (0, (1, 2)),
            )  # fmt: skip
            if known:
                axes.plot(
                    [rate.quantity.value],
                    [place],
                    "o",
                    color=rate.color,
                    markersize=5.5,
                    markeredgecolor=PAPER,
                )
    axes.axvline(0.5, color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    axes.set(xlim=(-0.01, 1.01), ylim=(len(rows) - 0.5, -0.5), xlabel="share of right answers")
    axes.set_yticks(range(len(rows)), [_short(name) for name, _ in rows], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    light_grid(axes, "x")
    return figure


def _short(name: str) -> str:
    return math_free(printable(name, limit=18))


def states(state: Snapshot, concept: str) -> tuple[dict[str, Parts], tuple[float, float]]:
    """Return what the performance panels of a concept need, by strategy, and the limits of one scale for all."""
    drawn = {name: _parts(bins[concept], posterior(bins[concept])) for name, bins in state.bins.items()}
    ends = [limits_of(bins, mean, sd) for bins, _, mean, sd in drawn.values()]
    return drawn, (min(low for low, _ in ends), max(high for _, high in ends))


def arrays(concept: ConceptResult) -> Parts:
    """Return bins (100,), grid, mean and sd (101,) of a concept of an examination."""
    return _parts(concept.bins, concept.performance)


def _parts(bins: NDArray[np.int64], process: Performance) -> Parts:
    return bins.astype(np.float64), GRID, process.mean(), np.sqrt(process.variance())


PUBLISHED = ("biased-1", "biased-2", "unbiased")

PANEL = 260  # pixels: width of a panel; its height is three quarters of that

ACROSS = 4  # panels in a row

TITLE = 10  # points


def write_figures(
    found: Examination,
    comparison: StrategyComparison,
    state: Snapshot | None,
    out: Path,
    *,
    questions: int,
    seed: int,
    reading: Reading,
    progress: Progress = QUIET,
) -> list[Path]:
    """Write the figures, and the numbers of Figure 4 for the synthetic examinees as `synthetic.json`."""
    out.mkdir(parents=True, exist_ok=True)
    synthetic = {}
    for name in PUBLISHED:
        synthetic[name] = compare_strategies(
            found.bank,
            lambda own, make=SYNTHETIC[name]: make(found.bank, own),  # type: ignore[misc]
            repetitions=comparison.repetitions,
            questions=questions,
            seed=seed,
            reading=reading,
            rules=comparison.rules,
            progress=progress,
        )
    write_json(out / "synthetic.json", json_content(synthetic), checked=True)
    files = save(_performance(found), out / "figure-2")
    if state is not None:
        files += save(_state(state), out / "figure-3")
    return files + save(_uncertainty({"examinee": comparison, **synthetic}), out / "figure-4")


def _performance(found: Examination) -> Figure:
    concepts = found.concepts
    rows = -(-len(concepts) // ACROSS)
    across = min(len(concepts), ACROSS)
    figure, axes = canvas(across * PANEL, rows * 0.75 * PANEL, rows, across)
    for number in range(rows * across):
        place = axes[number // across][number % across]
        if number >= len(concepts):
            place.set_visible(False)
            continue
        name, one = list(concepts.items())[number]
        draw_performance(place, *arrays(one))
        _title(place, name)
    return figure


def _state(state: Snapshot) -> Figure:
    """One row per concept, one column per strategy, the panels of a row on one scale."""
    names = list(state.bins)
    figure, axes = canvas(
        len(names) * PANEL, len(state.concepts) * 0.75 * PANEL, len(state.concepts), len(names)
    )
    for row, concept in enumerate(state.concepts):
        drawn, limits = states(state, concept)
        for column, (name, parts) in enumerate(drawn.items()):
            draw_performance(axes[row][column], *parts, limits=limits)
            _title(axes[row][column], f"{printable(concept, limit=24)}, {name}")
    return figure


def _uncertainty(comparisons: Mapping[str, StrategyComparison]) -> Figure:
    figure, [axes] = canvas(len(comparisons) * 1.15 * PANEL, PANEL, 1, len(comparisons))
    names = list(next(iter(comparisons.values())).strategies)
    for place, (examinee, comparison) in zip(axes, comparisons.items(), strict=True):
        asked = np.asarray(comparison.questions, np.float64)
        lines = []
        for number, name in enumerate(names):
            lines.append(course(mark(number), asked, comparison.strategies[name]))
        draw_progress(place, lines)
        _title(place, examinee)
    handles = [_handle(number, name) for number, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _handle(number: int, name: str) -> Line2D:
    style = mark(number)
    handle = Line2D([], [], color=style.color, label=name)
    handle.set_linestyle(style.linestyle)  # type: ignore[arg-type]  # matplotlib's stubs know no solid tuple
    return handle


def _title(axes: Axes, name: str) -> None:
    axes.set_title(math_free(printable(name, limit=60)), fontsize=TITLE, pad=24 if axes.texts else 6)
