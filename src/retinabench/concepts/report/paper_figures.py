"""Figures 2 to 4 of Fountoukidou and Sznitman (2019) for any bank, as files of their own.

- `figure-2`: what the answers say of each concept (the right part of the published figure; the left part is a diagram);
- `figure-3`: two concepts after a hundred questions, by each strategy: the commonest and the rarest;
- `figure-4`: the mean uncertainty against the number of questions, by each strategy, for the examinee and for the three
  synthetic ones of the publication, mean of the repetitions with its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from retinabench.concepts.examinees.synthetic import SYNTHETIC
from retinabench.concepts.inference.gaussian_process import Reading
from retinabench.concepts.questioning.examination import Examination
from retinabench.concepts.questioning.strategy_comparison import StrategyComparison, compare_strategies
from retinabench.concepts.report import figures
from retinabench.concepts.report.snapshot import Snapshot
from retinabench.core.errors import printable
from retinabench.core.files import write_json
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import json_content
from retinabench.reports.toolkit.figures import canvas, math_free, save
from retinabench.reports.toolkit.style import mark

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
        figures.draw_performance(place, *figures.arrays(one))
        _title(place, name)
    return figure


def _state(state: Snapshot) -> Figure:
    """One row per concept, one column per strategy, the panels of a row on one scale."""
    names = list(state.bins)
    figure, axes = canvas(
        len(names) * PANEL, len(state.concepts) * 0.75 * PANEL, len(state.concepts), len(names)
    )
    for row, concept in enumerate(state.concepts):
        drawn, limits = figures.states(state, concept)
        for column, (name, parts) in enumerate(drawn.items()):
            figures.draw_performance(axes[row][column], *parts, limits=limits)
            _title(axes[row][column], f"{printable(concept, limit=24)}, {name}")
    return figure


def _uncertainty(comparisons: Mapping[str, StrategyComparison]) -> Figure:
    figure, [axes] = canvas(len(comparisons) * 1.15 * PANEL, PANEL, 1, len(comparisons))
    names = list(next(iter(comparisons.values())).strategies)
    for place, (examinee, comparison) in zip(axes, comparisons.items(), strict=True):
        asked = np.asarray(comparison.questions, np.float64)
        lines = []
        for number, name in enumerate(names):
            lines.append(figures.course(mark(number), asked, comparison.strategies[name]))
        figures.draw_progress(place, lines)
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
