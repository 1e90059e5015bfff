"""The ranking for the terminal: the best trials, and what became of the others."""

from __future__ import annotations

import math
from collections import Counter

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.plots import short_names
from retinabench.experiments.search.ranking import Ranking

MOST = 10


def ranking_table(ranking: Ranking, most: int = MOST) -> Group:
    """Return the first `most` trials with a value, best first; a line below counts the others."""
    known = [row for row in ranking.rows if math.isfinite(row.value)]
    table = Table(
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, int(len(ranking.space) < 6), 0, 0),  # seven parameters fit 80 columns
    )
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("value ↑", justify="right", no_wrap=True)
    for name, parameter in zip(short_names(ranking.space), ranking.space, strict=True):
        words = [
            *name.split("_"),
            *(w for r in known[:most] for w in _short(r.values[parameter.key]).split()),
        ]
        table.add_column(name.replace("_", " "), justify="right", min_width=max(map(len, words)))
    for place, row in enumerate(known[:most]):
        values = [escape(_short(row.values[parameter.key])) for parameter in ranking.space]
        style = "bold" if place == 0 and row.ranked else "dim" if row.stopped else ""
        table.add_row(str(row.trial), f"{row.value:.4f}", *values, style=style)
    title = f"{CRITERIA[ranking.criterion].title} ({ranking.rules})"
    return Group(Text(title, "bold"), table, Text(_caption(ranking, len(known) - min(most, len(known)))))


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower().replace("_", " ")


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
    return ". ".join(parts) + "." if parts else ""
