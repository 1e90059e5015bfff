"""One figure: per set the log-likelihood and the RMSE of every method, ours filled, as printed hollow."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from retinabench.core.atomic_files import write_bytes
from retinabench.data.datasets.uci import SETS
from retinabench.experiments.uci.published import PUBLISHED
from retinabench.experiments.uci.scores import Results
from retinabench.experiments.uci.tables import mean_and_error
from retinabench.reports.toolkit.figures import canvas, figure_style
from retinabench.reports.toolkit.style import FAINT, INK, MUTED, PAPER, mark

COLUMNS = {"log_likelihood": "log-likelihood, nats per point", "rmse": "root mean squared error"}


def write_figure(found: Results, out: Path) -> list[Path]:
    """Write `uci.svg` and `uci.png`, the same bytes for the same results; return their paths."""
    figure = draw_figure(found)
    for ending in ("svg", "png"):
        with figure_style(), io.BytesIO() as sink:
            nothing = {"svg": dict.fromkeys(("Date", "Creator")), "png": {"Software": None}}[ending]
            figure.savefig(sink, format=ending, dpi=110, facecolor=PAPER, metadata=nothing)
            write_bytes(out / f"uci.{ending}", sink.getvalue())
    return [out / "uci.svg", out / "uci.png"]


def draw_figure(found: Results) -> Figure:
    """Draw one row per set, one column per measure; bars are one standard error over splits (printed: as printed)."""
    titles = {method: result.title for by_method in found.values() for method, result in by_method.items()}
    figure, axes = canvas(920, 70 + 96 * len(found), rows=len(found), columns=2)
    for row, name in zip(axes, found, strict=True):
        for panel, measure in zip(row, COLUMNS, strict=True):
            _panel(panel, found, name, measure, list(titles))
        row[0].set_yticks(range(len(titles)), list(titles.values()), color=INK)
        row[1].set_yticks([])
        row[0].set_title(SETS[name].title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=3)
    for panel, label in zip(axes[-1], COLUMNS.values(), strict=True):
        panel.set_xlabel(label)
    handles = [
        axes[0][0].errorbar([], [], marker="o", linestyle="none", color=INK, markersize=6, label="ours"),
        axes[0][0].errorbar(
            [],
            [],
            marker="o",
            linestyle="none",
            color=MUTED,
            markerfacecolor=PAPER,
            markersize=6,
            label="as printed",
        ),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
    return figure


def _panel(panel: Axes, found: Results, name: str, measure: str, methods: list[str]) -> None:
    for number, method in enumerate(methods):
        color = mark(number).color
        printed = PUBLISHED[name][method]
        panel.errorbar(
            [getattr(printed, measure)], [number + 0.16], xerr=getattr(printed, f"{measure}_spread"), marker="o",
            color=color, markerfacecolor=PAPER, markersize=6, linewidth=1, alpha=0.75,
        )  # fmt: skip
        if method in found[name]:
            mean, error = mean_and_error(found[name][method], measure)
            panel.errorbar(
                [mean], [number - 0.16], xerr=error, marker="o", color=color, markersize=6, zorder=3
            )
    panel.set_ylim(len(methods) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.grid(axis="x", color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
