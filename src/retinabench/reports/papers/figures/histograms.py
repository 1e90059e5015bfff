"""Histograms of predictive entropy by grade and method, of right and wrong predictions (paper: Figures 3 and 8 to 13)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers.figures.parts import PaperFigure, file_name, outline
from retinabench.reports.papers.origins import JOINT_CRITERION
from retinabench.reports.papers.results import MethodRuns, TaskResults
from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import BAD, GOOD, MUTED

Floats = NDArray[np.float64]
EDGES = np.linspace(0, np.log(2), 31)
NUMBERS = {  # (task, set, ensembles)
    ("severity_shift", "joint", False): "8", ("severity_shift", "joint", True): "9",
    ("country_shift", "in_domain", False): "10", ("country_shift", "in_domain", True): "11",
    ("country_shift", "shifted", False): "12", ("country_shift", "shifted", True): "13",
}  # fmt: skip
MOST = 6  # columns of one figure
_CAPTION = (
    "Predictive entropy of right (blue) and wrong (red) predictions, each normalised to a density; all panels share "
    "their axes, and bars taller than the frame are cut. Numbers: images predicted right and wrong. All runs "
    "of a method are pooled."
)


def figures(results: TaskResults) -> tuple[list[PaperFigure], list[str]]:
    """Return the histograms of single methods and of ensembles per set (Severity Shift: both sets together)."""
    if not results.methods:
        return [], []
    if any(test.grade is None for method in results.methods for test in method.tests[:1]):
        return [], [results.missing("histograms by grade", "the column 'grade'")]
    domains = set(results.methods[0].tests[0].domain.tolist())
    sets = [name for name in ("in_domain", "shifted") if name in domains]
    if results.kind == "severity_shift" and len(domains) == 2:
        sets = ["joint"]
    made = []
    for name in sets:
        for pooled in (False, True):
            methods = [method for method in results.methods if method.ensemble == pooled]
            for part in range(0, len(methods), MOST):
                made.append(_figure(results, name, pooled, methods[part : part + MOST], part // MOST))
    return made, []


def _figure(
    results: TaskResults, name: str, pooled: bool, methods: Sequence[MethodRuns], part: int
) -> PaperFigure:
    number = "" if results.criterion == JOINT_CRITERION else NUMBERS.get((results.kind, name, pooled), "")
    kind = f"uncertainty-{name.replace('_', '-')}-{'ensembles' if pooled else 'single'}"
    stem = file_name(kind, number, results) + (f"-{part + 1}" if part else "")
    which = "ensembles" if pooled else "single methods"
    title = f"Uncertainty by grade, {SET_LABELS[name].lower()}, {which}, {results.title()}"
    return PaperFigure(stem, number, title, _CAPTION, partial(_draw, methods, name))


def _draw(methods: Sequence[MethodRuns], name: str) -> Figure:
    pairs = [[_densities(method, name, grade) for method in methods] for grade in range(5)]
    figure, grid = canvas(80 + 118 * len(methods), 5 * 74 + 40, 5, len(methods), sharex=True, text=11)
    top = _top([density for row in pairs for right, wrong, *_ in row for density in (right, wrong)])
    for grade, (line, cells) in enumerate(zip(grid, pairs, strict=True)):
        for axes, cell in zip(line, cells, strict=True):
            _panel(axes, *cell, top)
        line[0].set_ylabel("density", fontsize=7.5)
        line[-1].text(
            1.04, 0.5, f"grade {grade}", transform=line[-1].transAxes, rotation=270, va="center", fontsize=9
        )
    for axes, method in zip(grid[0], methods, strict=True):
        axes.set_title(_folded(method.name), fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("entropy (nats)", fontsize=8.5)
    for line in grid:
        for axes in line[1:]:
            axes.tick_params(labelleft=False)
    return figure


def _densities(method: MethodRuns, name: str, grade: int) -> tuple[Floats, Floats, int, int]:
    """Return the densities over `EDGES` of right and wrong predictions of one grade, and their numbers."""
    values, right = [], []
    for test in method.tests:
        assert test.grade is not None
        rows = (test.grade == grade) & ((test.domain == name) | (name == "joint"))
        values.append(binary_entropy(test.prob[rows]))
        right.append((test.prob[rows] > 0.5) == (test.label[rows] == 1))
    entropy, correct = np.concatenate(values).clip(0, EDGES[-1]), np.concatenate(right)
    parts = [entropy[correct], entropy[~correct]]
    return (
        *(np.histogram(p, EDGES, density=True)[0] if len(p) else np.zeros(len(EDGES) - 1) for p in parts),
        *map(len, parts),
    )  # type: ignore[return-value]


def _top(densities: Sequence[Floats]) -> float:
    """Return the common upper limit of all panels: the spikes of confident predictions are cut."""
    values = np.concatenate(densities)
    values = values[values > 0]
    return float(1.15 * np.quantile(values, 0.95)) if values.size else 1.0


def _panel(axes: Axes, right: Floats, wrong: Floats, rights: int, wrongs: int, top: float) -> None:
    for density, color in ((right, GOOD), (wrong, BAD)):
        axes.stairs(density, EDGES, color=color, fill=True, alpha=0.45, linewidth=0)
        axes.stairs(density, EDGES, color=color, linewidth=0.7)
    axes.set(xlim=(0, EDGES[-1]), ylim=(0, top))
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    for height, count, color in ((0.93, rights, GOOD), (0.78, wrongs, BAD)):
        text = f"{count:,}" if count else "none"
        shown = axes.text(
            0.6,
            height,
            text,
            transform=axes.transAxes,
            fontsize=7,
            color=color if count else MUTED,
            ha="center",
            va="top",
        )
        outline(shown)


def _folded(name: str) -> str:
    """Break a long name into at most three lines."""
    words, lines = name.replace("$", r"\$").split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 18 and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines[:3])
