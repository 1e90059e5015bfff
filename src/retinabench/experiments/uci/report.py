"""The comparison as CSV, Markdown and a figure: mean ± standard error over splits, beside the printed values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from retinabench.core.atomic_files import write_bytes
from retinabench.core.untrusted.text import csv_text
from retinabench.data.datasets.uci import SETS
from retinabench.experiments.uci.scores import Results, SetResult
from retinabench.reports.toolkit.figures import canvas, save
from retinabench.reports.toolkit.style import FAINT, INK, MUTED, PAPER, mark

MEASURES = {
    "log_likelihood": "Log-likelihood, nats per point (higher is better)",
    "rmse": "Root mean squared error, in the target's units (lower is better)",
    "matched_log_likelihood": "Log-likelihood of one Gaussian per point with the mixture's mean and variance",
}
COLUMNS = {"log_likelihood": "log-likelihood, nats per point", "rmse": "root mean squared error"}


def write_report(found: Results, epochs: int, out: Path) -> list[Path]:
    """Write `uci.csv` and `uci.md` of all results, and `uci.svg` and `uci.png`; return their paths.

    Args:
        found: The results by set and method.
        epochs: Of training, for the notes.
        out: The folder.
    """
    write_bytes(out / "uci.csv", csv_table(found, epochs).encode())
    write_bytes(out / "uci.md", markdown(found, epochs).encode())
    return [out / "uci.csv", out / "uci.md", *save(draw_figure(found), out / "uci", dpi=110)]


def mean_and_error(result: SetResult, measure: str) -> tuple[float, float]:
    """Return mean and standard error (sample standard deviation / √K) over the K splits."""
    values = result.values(measure)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def csv_table(found: Results, epochs: int) -> str:
    """One row per set and method."""
    head = ["set", "method", "epochs", "splits", "points"]
    head += [f"{measure}{suffix}" for measure in MEASURES for suffix in ("", "_standard_error")]
    head += [f"published_{field}" for field in Printed._fields]
    rows: list[list[object]] = [[*head]]
    for name, by_method in found.items():
        for method, result in by_method.items():
            ours = [f"{value:.6g}" for measure in MEASURES for value in mean_and_error(result, measure)]
            rows.append(
                [
                    name,
                    method,
                    epochs,
                    len(result.splits),
                    result.points,
                    *ours,
                    *PUBLISHED[name][method],
                ]
            )
    return csv_text(rows)


def markdown(found: Results, epochs: int) -> str:
    """One table per measure: per method ours and the printed value, and the released grid search of MC dropout."""
    titles = {method: result.title for by_method in found.values() for method, result in by_method.items()}
    blocks = [
        f"{epochs} epochs. Ours: mean ± standard error over the random splits. Published: Table 2 of the 2019 paper, as "
        "printed. Grid search: the released MC dropout code's own table."
    ]
    for measure, title in MEASURES.items():
        printed = measure in Printed._fields
        head = ["set"]
        for method, name in titles.items():
            head += [name, "published"] if printed else [name]
            head += ["grid search"] if printed and method == "dropout" else []
        rows = [head, ["---"] * len(head)]
        for name, by_method in found.items():
            row = [SETS[name].title]
            for method in titles:
                ours = by_method.get(method)
                row.append("" if ours is None else plus_minus(*mean_and_error(ours, measure)))
                if printed:
                    row.append(_printed(PUBLISHED[name][method], measure))
                    row += [_printed(GRID_SEARCH[name], measure)] if method == "dropout" else []
            rows.append(row)
        lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        blocks.append(f"### {title}\n\n{lines}")
    return "\n\n".join(blocks) + "\n"


def plus_minus(mean: float, error: float) -> str:
    """Return `-2.46 ± 0.06`: two to five decimals, as many as the error's second digit needs."""
    if not math.isfinite(error):
        return f"{mean:.3g}"
    decimals = 2 if error <= 0 else min(max(1 - math.floor(math.log10(error)), 2), 5)
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


def _printed(value: Printed, measure: str) -> str:
    mean, spread = getattr(value, measure), getattr(value, f"{measure}_spread")
    return f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}"


def draw_figure(found: Results) -> Figure:
    """Draw one row per set, one column per measure; bars are one standard error over splits (printed: as printed)."""
    titles = {method: result.title for by_method in found.values() for method, result in by_method.items()}
    figure, axes = canvas(920, 70 + 96 * len(found), rows=len(found), columns=2, text=11)
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


class Printed(NamedTuple):
    """A mean and what follows its ± (None: not printed), for the log-likelihood and the RMSE."""

    log_likelihood: float
    log_likelihood_spread: float | None
    rmse: float
    rmse_spread: float | None


# Table 2 of the 2019 paper, which took the deep ensembles from Lakshminarayanan et al. 2017 and the other two from
# Mukhoti et al. 2018. Kept as printed, impossible values included (docs/uci.md).
_TABLE = {
    # set: dropout, variational, ensemble
    "boston": ((-2.46, 0.25, 2.97, 0.85), (-2.58, 0.06, 3.42, 0.23), (-2.41, 0.25, 3.28, 1.00)),
    "concrete": ((-3.04, 0.09, 5.23, 0.53), (-5.08, 0.01, 5.71, 0.15), (-3.06, 0.18, 6.03, 0.58)),
    "energy": ((-1.99, 0.09, 1.66, 0.19), (-1.05, 0.01, 0.81, 0.08), (-1.38, 0.22, 2.09, 0.29)),
    "kin8nm": ((0.95, 0.03, 0.10, 0.00), (1.08, 0.01, 0.37, 0.00), (1.20, 0.02, 0.09, 0.00)),
    "naval": ((3.80, 0.05, 0.01, 0.00), (-1.57, 0.01, 0.01, 0.00), (5.63, 0.05, 0.00, 0.00)),
    "power": ((-2.80, 0.05, 4.02, 0.18), (-7.54, 0.00, 4.02, 0.04), (-2.79, 0.04, 4.11, 0.17)),
    "protein": ((-2.89, 0.01, 4.36, 0.04), (-3.67, 0.00, 4.40, 0.02), (-2.83, 0.02, 4.71, 0.06)),
    "wine": ((-0.93, 0.06, 0.62, 0.04), (-3.15, 0.01, 0.65, 0.01), (-0.94, 0.12, 0.64, 0.04)),
    "yacht": ((-1.55, 0.12, 1.11, 0.38), (-4.20, 0.05, 1.75, 0.42), (-1.18, 0.21, 1.58, 0.48)),
}
PUBLISHED: dict[str, dict[str, Printed]] = {
    name: {
        method: Printed(*row)
        for method, row in zip(("dropout", "variational", "ensemble"), rows, strict=True)
    }
    for name, rows in _TABLE.items()
}

# The grid search of the released MC dropout code, many more epochs than Table 2's.
GRID_SEARCH: dict[str, Printed] = {
    name: Printed(likelihood, None, rmse, None)
    for name, (likelihood, rmse) in {
        "boston": (-2.40, 2.90),
        "concrete": (-2.93, 4.82),
        "energy": (-1.21, 0.54),
        "kin8nm": (1.14, 0.08),
        "naval": (4.45, 0.00),
        "power": (-2.80, 4.01),
        "protein": (-2.87, 4.27),
        "wine": (-0.93, 0.62),
        "yacht": (-1.25, 0.67),
    }.items()
}
