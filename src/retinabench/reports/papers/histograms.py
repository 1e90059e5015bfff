"""Predictive uncertainty by grade and method, right and wrong answers apart (paper: Figures 8 to 13, and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from retinabench.metrics.sets import SET_LABELS
from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers.collect import Collection, Group, Study
from retinabench.reports.papers.drawing import Drawing, halo
from retinabench.reports.papers.retina import JOINTLY
from retinabench.reports.papers.words import in_words, needs, slug
from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import BAD, GOOD, MUTED

Floats = NDArray[np.float64]
EDGES = np.linspace(0, np.log(2), 31)
NUMBERS = {  # (task, sets, ensembles)
    ("severity_shift", "joint", False): "8", ("severity_shift", "joint", True): "9",
    ("country_shift", "in_domain", False): "10", ("country_shift", "in_domain", True): "11",
    ("country_shift", "shifted", False): "12", ("country_shift", "shifted", True): "13",
}  # fmt: skip
MOST = 6  # columns of one figure


def drawings(study: Study, collection: Collection) -> tuple[list[Drawing], list[str]]:
    """Return the histograms of a study: single methods and ensembles, per set (Severity Shift: both sets together)."""
    if not study.groups:
        return [], []
    if any(test.grade is None for group in study.groups for test in group.tests[:1]):
        return [], [needs("histograms by grade", study, "the column 'grade'")]
    task = study.task.removesuffix("_published")
    domains = set(study.groups[0].tests[0].domain.tolist())
    sets = (
        ["joint"]
        if task == "severity_shift" and len(domains) == 2
        else [n for n in ("in_domain", "shifted") if n in domains]
    )
    made = []
    for name in sets:
        for pooled in (False, True):
            groups = [group for group in study.groups if group.ensemble == pooled]
            for part in range(0, len(groups), MOST):
                made.append(_drawing(study, name, pooled, groups[part : part + MOST], part // MOST))
    return made, []


def _drawing(study: Study, name: str, pooled: bool, groups: Sequence[Group], part: int) -> Drawing:
    key = (study.task.removesuffix("_published"), name, pooled)
    number = "" if study.criterion == JOINTLY else NUMBERS.get(key, "")
    who = "ensembles" if pooled else "single"
    pieces = (
        f"figure-{int(number):02d}" if number else "figure",
        "uncertainty",
        name.replace("_", "-"),
        who,
        slug(study),
    )
    stem = "-".join(piece for piece in pieces if piece) + (f"-{part + 1}" if part else "")
    caption = (
        "Predictive entropy of right (blue) and wrong (red) answers, each a density of its own; all panels share their axes, "
        "and bars taller than the frame are cut. Corners: images right and wrong. All runs of a method are pooled."
    )
    title = f"Uncertainty by grade, {SET_LABELS[name].lower()}, {'ensembles' if pooled else 'single methods'}, {in_words(study)}"
    return Drawing(stem, number, title, caption, partial(_draw, groups, name))


def _draw(groups: Sequence[Group], name: str) -> Figure:
    pairs = [[_densities(group, name, grade) for group in groups] for grade in range(5)]
    figure, grid = canvas(80 + 118 * len(groups), 5 * 74 + 40, 5, len(groups), sharex=True)
    top = _top([density for row in pairs for right, wrong, *_ in row for density in (right, wrong)])
    for grade, (line, cells) in enumerate(zip(grid, pairs, strict=True)):
        for axes, cell in zip(line, cells, strict=True):
            _panel(axes, *cell, top)
        line[0].set_ylabel("density", fontsize=7.5)
        line[-1].text(
            1.04, 0.5, f"grade {grade}", transform=line[-1].transAxes, rotation=270, va="center", fontsize=9
        )
    for axes, group in zip(grid[0], groups, strict=True):
        axes.set_title(_folded(group.name), fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("entropy (nats)", fontsize=8.5)
    for line in grid:
        for axes in line[1:]:
            axes.tick_params(labelleft=False)
    return figure


def _densities(group: Group, name: str, grade: int) -> tuple[Floats, Floats, int, int]:
    """Densities over `EDGES` of right and wrong answers of one grade, and how many answers these are."""
    values, right = [], []
    for test in group.tests:
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
    """The height of all panels: most bars fit, the spikes of sure answers are cut."""
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
        halo(shown)


def _folded(name: str) -> str:
    """A name over two lines where it is long."""
    words, lines = name.replace("$", r"\$").split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 18 and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines[:3])
