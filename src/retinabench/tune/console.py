"""The ranking for the terminal: the best trials, and what became of the others."""

from __future__ import annotations

import math
from collections import Counter

from rich import box
from rich.markup import escape
from rich.table import Table

from retinabench.tune.criteria import CRITERIA
from retinabench.tune.plots import short_names
from retinabench.tune.ranking import Ranking

MOST = 10


def ranking_table(ranking: Ranking, most: int = MOST) -> Table:
    """Return the first `most` trials with a value, best first; the caption counts the others."""
    known = [row for row in ranking.rows if math.isfinite(row.value)]
    table = Table(
        title=f"{CRITERIA[ranking.criterion].title} ({ranking.rules})",
        title_justify="left",
        title_style="bold",
        caption=_caption(ranking, len(known) - min(most, len(known))),
        caption_justify="left",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("rank", justify="right")
    table.add_column("trial", justify="right")
    table.add_column("value ↑", justify="right")
    for name in short_names(ranking.space):
        table.add_column(name, justify="right", overflow="fold")
    for place, row in enumerate(known[:most], start=1):
        values = [escape(_short(row.values[parameter.key])) for parameter in ranking.space]
        style = "bold" if place == 1 and row.ranked else "dim" if row.stopped else ""
        table.add_row(str(place), str(row.trial), f"{row.value:.4f}", *values, style=style)
    return table


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower()


def _caption(ranking: Ranking, more: int) -> str:
    """Count what the table does not show, with the first reason of each kind."""
    parts = [f"{more} more in ranking.csv"] if more else []
    stopped = sum(row.stopped and math.isfinite(row.value) for row in ranking.rows)
    if stopped:
        parts.append(f"{stopped} stopped early (dim)")
    lost = [row for row in ranking.rows if not math.isfinite(row.value)]
    kinds = Counter("undefined" if row.state == "done" else row.state for row in lost)
    for kind, count in kinds.items():
        first = next(r for r in lost if ("undefined" if r.state == "done" else r.state) == kind)
        parts.append(f"{count} {kind.replace('_', ' ')} (trial {first.trial}: {first.why})")
    return escape(". ".join(parts) + "." if parts else "")
