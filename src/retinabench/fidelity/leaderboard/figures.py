"""The figures of the board: scores with intervals beside the ceiling, and the competition's Figure 1.

Panels of Figure 1 hold no names: the legend of the page does, by the marks of `report/style.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.fidelity.leaderboard.tables import ordered
from retinabench.fidelity.scoring.measures import MEASURES, RANKED
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.reports.evaluation.figures import WIDTH
from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import FAINT, INK, MUTED, PASS, Mark

BINS = 6  # of equally many points, for the calibration curves
BROAD = "#b9b8b2"  # the reference's line
LEVELS = np.linspace(0.1, 0.9, 9)  # of central intervals, for regression


def board_width(task: Mapping[str, Any]) -> int:
    """Return the width of the task's board figure in CSS pixels: a panel for each ranked measure."""
    return 180 + 290 * len(RANKED[task["likelihood"]])


def board_figure(task: Mapping[str, Any]) -> Figure:
    """Draw every entry's ranked measures with their intervals; the band is one chain of the reference against the others.

    Trivial submissions are grey.
    """
    names = RANKED[task["likelihood"]]
    entries = ordered(task["entries"], names[0])
    height = 90 + 22 * len(entries)
    figure, [row] = canvas(board_width(task), height, 1, len(names))
    places = np.arange(len(entries))[::-1]
    for axes, name in zip(row, names, strict=True):
        ceiling = task["ceiling"][ALL][name]
        if ceiling.get("low") is not None:
            axes.axvspan(ceiling["low"], ceiling["high"], color=PASS, alpha=0.18, linewidth=0)
        axes.axvline(ceiling["value"], color=PASS, linewidth=1.0)
        if name in task["floor"][ALL]:
            axes.axvline(task["floor"][ALL][name], color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        for place, entry in zip(places, entries, strict=True):
            one = entry["groups"][ALL][name]
            color = MUTED if entry["baseline"] else INK
            if one.get("low") is not None:
                axes.plot([one["low"], one["high"]], [place, place], color=color, linewidth=1.2)
            axes.plot(
                [one["value"]], [place], "o" if not entry["baseline"] else "x", color=color, markersize=5
            )
        axes.set(yticks=places, ylim=(-0.6, len(entries) - 0.4), xlabel=_axis(name))
        axes.set_yticklabels([entry["title"] for entry in entries] if axes is row[0] else [], fontsize=10)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure


def entropy_panel(
    reference: NDArray[np.floating], methods: Sequence[tuple[Mark, NDArray[np.floating]]]
) -> Figure:
    """Draw histograms of the predictive entropy (n,) of class probabilities (n, C); the reference's is filled."""
    most = float(np.log(reference.shape[1]))
    label = "predictive entropy, nats"
    return _histogram(_entropy(reference), [(mark, _entropy(p)) for mark, p in methods], most, label)


def deviation_panel(
    reference: NDArray[np.floating], methods: Sequence[tuple[Mark, NDArray[np.floating]]]
) -> Figure:
    """Draw histograms of the predictive deviation of draws of y (n, S)."""
    ours = [(mark, draws.std(axis=1)) for mark, draws in methods]
    spread = reference.std(axis=1)
    most = float(np.quantile(np.concatenate([spread, *(one for _, one in ours)]), 0.98))
    return _histogram(spread, ours, most, "predictive deviation of y")


def calibration_panel(
    label: NDArray[np.int64],
    reference: NDArray[np.floating],
    methods: Sequence[tuple[Mark, NDArray[np.floating]]],
) -> Figure:
    """Draw accuracy over confidence, in bins of equally many points; the diagonal is calibrated."""
    figure, axes = _calibration()
    for width, color, style, probs in _with_reference(reference, methods):
        confidence, right = probs.max(axis=1), probs.argmax(axis=1) == label
        bins = np.array_split(np.argsort(confidence, kind="stable"), BINS)
        x = [confidence[rows].mean() for rows in bins]
        y = [right[rows].mean() for rows in bins]
        axes.plot(x, y, color=color, linestyle=style, linewidth=width, marker="o", markersize=3)
    axes.set(xlabel="confidence", ylabel="accuracy")
    return figure


def coverage_panel(
    truth: NDArray[np.floating],
    reference: NDArray[np.floating],
    methods: Sequence[tuple[Mark, NDArray[np.floating]]],
) -> Figure:
    """Draw how often y lies in central intervals of the draws (n, S) over how often it should."""
    figure, axes = _calibration()
    for width, color, style, draws in _with_reference(reference, methods):
        low, high = (np.quantile(draws, (1 + sign * LEVELS) / 2, axis=1) for sign in (-1, 1))
        y = ((truth >= low) & (truth <= high)).mean(axis=1)
        axes.plot(LEVELS, y, color=color, linestyle=style, linewidth=width, marker="o", markersize=3)
    axes.set(xlabel="level of the central interval", ylabel="share of y inside")
    return figure


def _histogram(
    reference: NDArray[np.floating],
    methods: Sequence[tuple[Mark, NDArray[np.floating]]],
    most: float,
    label: str,
) -> Figure:
    figure, [[axes]] = canvas(WIDTH, 240)
    edges = np.linspace(0, most, 21)
    filled = np.histogram(reference, edges)[0] / len(reference)
    axes.stairs(filled, edges, color=MUTED, fill=True, alpha=0.3, linewidth=0)
    for mark, values in methods:
        share = np.histogram(values, edges)[0] / len(values)
        axes.stairs(share, edges, color=mark.color, linestyle=mark.linestyle, linewidth=1.5, baseline=None)
    axes.set(xlim=(0, most), xlabel=label, ylabel="share of points")
    return figure


def _calibration() -> tuple[Figure, Axes]:
    figure, [[axes]] = canvas(WIDTH, WIDTH * 0.9)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    return figure, axes


def _with_reference(
    reference: NDArray[np.floating], methods: Sequence[tuple[Mark, NDArray[np.floating]]]
) -> list[tuple[float, str, Any, NDArray[np.floating]]]:
    """Return width, colour, style and values of all lines, the reference below the others, grey and broad."""
    lines = ((1.6, mark.color, mark.linestyle, values) for mark, values in methods)
    return [(4.0, BROAD, "-", reference), *lines]


def _entropy(probs: NDArray[np.floating]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.where(probs > 0, probs * np.log(probs), 0).sum(axis=1, dtype=np.float64))


def _axis(name: str) -> str:
    about = MEASURES[name]
    return f"{about.label}{f', {about.unit}' if about.unit else ''} ({'more' if about.higher else 'less'} is better)"
