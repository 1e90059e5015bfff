"""The figures of the clinic's page: missed disease against referral, decision curves, calibration."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from retinabench.metrics.calibration import CalibrationSummary
from retinabench.metrics.clinical.set_screening import SetScreening
from retinabench.reports.toolkit.figures import WIDTH, Line, canvas, draw_lines, light_grid
from retinabench.reports.toolkit.style import BAD, GOOD, INK, MUTED, Mark

HEIGHT = 300
MODEL, READER = Mark(0, 0), Mark(1, 1)


def missed_panel(one: SetScreening) -> Figure:
    """Draw the share of referable images that is missed against the share of images that is referred."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    referred, missed = one.missed.curve
    axes.plot([0, 1], [missed[0], 0], color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
    axes.plot(referred, missed, color=BAD, zorder=3)
    rate, share = one.workload.images.value, one.missed.referable
    if one.referred and np.isfinite(share.low):
        error = np.array([[share.value - share.low], [share.high - share.value]])
        axes.errorbar(
            [rate], [share.value], yerr=error, color=INK, marker="o", markersize=6, linewidth=1.2, zorder=4
        )
    top = float(np.nanmax([missed[0], share.high if np.isfinite(share.high) else 0, 0.02]))
    axes.set(
        xlim=(0, 1), ylim=(0, 1.08 * top), xlabel="referred to the expert", ylabel="referable images missed"
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(
            PercentFormatter(1, decimals=0 if top > 0.05 or axis is axes.xaxis else 1, symbol=" %")
        )
    light_grid(axes, "y")
    return figure


def decision_panel(one: SetScreening) -> Figure:
    """Draw the net benefit of the model, of the model with a reader of the referred, of treating all and of treating none."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    curve, reader = one.decision_curve, one.with_reader
    axes.plot(curve.threshold, curve.treat_all, color=MUTED, linewidth=1.0, linestyle=(0, (5, 2)))
    axes.axhline(0, color=MUTED, linewidth=1.0)
    lines = [Line(MODEL, curve.threshold, curve.model, curve.low, curve.high)]
    if one.referred:
        lines.append(Line(READER, reader.threshold, reader.model, reader.low, reader.high))
    draw_lines(axes, lines)
    # A single patient has no interval, and its ends are NaN.
    ends = [end for line in lines for end in (line.y, line.high) if end is not None]
    highest = float(np.nanmax([0.02, *np.concatenate(ends)]))
    axes.set(
        xlim=(curve.threshold[0], curve.threshold[-1]), ylim=(-0.25 * highest, 1.05 * highest),
        xlabel="threshold probability", ylabel="net benefit",
    )  # fmt: skip
    light_grid(axes, "y")
    return figure


def calibration_panel(summary: CalibrationSummary) -> Figure:
    """Draw the observed share of referable images against the predicted one, in groups of equally many images."""
    figure, [[axes]] = canvas(WIDTH, WIDTH)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    x = np.array([one.forecast for one in summary.curve])
    y, low, high = np.array([(o.observed.value, o.observed.low, o.observed.high) for o in summary.curve]).T
    ends = np.nan_to_num(np.stack([y - low, high - y]))
    axes.errorbar(
        x, y, yerr=np.maximum(ends, 0), color=GOOD, marker="o", markersize=4, linewidth=1.3, elinewidth=0.9
    )
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1.005),
        xlabel="predicted P(referable)",
        ylabel="observed share referable",
        aspect="equal",
    )
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_yticks(np.linspace(0, 1, 6))
    return figure
