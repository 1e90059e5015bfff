"""The curves of a method's page: ROC, referral and reliability, one line per set, and MAP's beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.sets import SET_LABELS
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.set_statistics import GRID, SetPredictions, referral
from retinabench.reports.toolkit.figures import WIDTH, Line, canvas, draw_lines, light_grid, to_svg
from retinabench.reports.toolkit.style import MUTED, Mark, Panel

Floats = NDArray[np.float64]
HEIGHT, BINS = 300, 8
Curves = Mapping[str, tuple[Floats, Floats]]


def set_marks(sets: Sequence[str]) -> dict[str, Mark]:
    """Return the mark of each set's line; dashed lines of the same colour are MAP's."""
    return {name: Mark(k, 0) for k, name in enumerate(sets)}


def curves_of(seeds: Sequence[Predictions], name: str) -> Curves:
    """Return the curves of a method on a set: the mean over its seeds.

    Args:
        seeds: The predictions of its seeds.
        name: The set.

    Returns:
        Name of the curve -> x and y.
    """
    cases = [case for one in seeds if (case := SetPredictions.of(one, name)) is not None]
    wholes = [case.cases.weighted() for case in cases]
    roc = np.mean([sensitivity_within(w, GRID) for w in wholes], axis=0)
    accuracy = np.mean([referral(w, "accuracy") for w in wholes], axis=0)
    prob, label = (np.concatenate([getattr(case, key) for case in cases]) for key in ("prob", "label"))
    bins = np.array_split(np.argsort(prob, kind="stable"), BINS)
    shares = [np.array([values[rows].mean() for rows in bins if len(rows)]) for values in (prob, label)]
    return {"roc": (GRID, roc), "referral": (GRID, accuracy), "reliability": (shares[0], shares[1])}


def panels(ours: Mapping[str, Curves], others: Mapping[str, Curves], prefix: str) -> list[Panel]:
    """Return the panels of a method's page.

    Args:
        ours: Set -> curves of the method.
        others: Set -> curves of MAP, empty on MAP's own page.
        prefix: Of all ids of the page.
    """
    marks = set_marks(list(ours))

    def lines(curve: str) -> list[Line]:
        drawn = [Line(Mark(marks[name].hue, 2), *others[name][curve]) for name in ours if name in others]
        return drawn + [Line(marks[name], *ours[name][curve]) for name in ours]

    sets = " and ".join(SET_LABELS[name].lower() for name in ours)
    made = (
        ("roc", "ROC", _diagonal(lines("roc"), "1 − specificity", "sensitivity")),
        ("referral", "Accuracy after referral", _referral(lines("referral"))),
        ("reliability", "Reliability", _diagonal(lines("reliability"), "P(referable)", "share referable")),
    )
    return [
        Panel(
            heading,
            to_svg(figure, f"{prefix}-{key}", title=f"{heading}: {sets}", description="Mean over seeds."),
        )
        for key, heading, figure in made
    ]


def _diagonal(lines: Sequence[Line], xlabel: str, ylabel: str) -> Figure:
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    draw_lines(axes, lines)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel=xlabel, ylabel=ylabel)
    return figure


def _referral(lines: Sequence[Line]) -> Figure:
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    draw_lines(axes, lines)
    axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel="accuracy of the others")
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    light_grid(axes, "y")
    return figure
