"""Two models side by side, and a frozen threshold on new cameras: tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from retinabench.report.marking import plain

SETS = {"in_domain": "in-domain", "shifted": "shifted", "joint": "joint", "balanced": "balanced"}


def comparison_table(found: Mapping[str, Any]) -> Table:
    """Return the table of `Comparison.to_dict()`: every score of every set, a, b, a - b with its interval."""
    caption = f"a = {found['a']}\nb = {found['b']}\n* better after Holm's correction over the scores of a set"
    table = Table(caption=escape(caption), caption_justify="left", header_style="bold")
    for title in ("set", "score"):
        table.add_column(title)
    for title in ("a", "b", "a - b", "p (Holm)", "better"):
        table.add_column(title, justify="right")
    for key, one in found["sets"].items():
        for name, entry in one["scores"].items():
            table.add_row(SETS.get(key, key), name, *_cells(entry))
        table.add_section()
    return table


def _cells(entry: Mapping[str, Any]) -> list[str]:
    better = entry.get("better")
    interval = ""
    if entry.get("low") is not None and entry.get("high") is not None:
        interval = f" [{plain(entry['low'], 3, signed=True)}, {plain(entry['high'], 3, signed=True)}]"
    difference = entry.get("difference")
    return [
        _number(entry.get("a")),
        _number(entry.get("b")),
        "–" if difference is None else escape(plain(difference, 3, signed=True) + interval),
        _number(entry.get("p_holm")),
        f"{better} *" if better else "",
    ]


def transfer_table(found: Mapping[str, Any]) -> Table:
    """Return the table of `Transfer.to_dict()`: what the frozen threshold does on each set."""
    table = Table(header_style="bold")
    table.add_column("set")
    for title in ("images", "referred", "error among the answered", "resembles validation", "guarantee"):
        table.add_column(title, justify="right")
    for key, one in found["sets"].items():
        alike = one.get("resemblance")
        table.add_row(
            SETS.get(key, key),
            f"{one['images']:,}",
            _estimate(one["referral_rate"]),
            _estimate(one["selective_risk"]),
            "" if alike is None else ("no" if alike["void"] else "not refuted"),
            one.get("guarantee", ""),
        )
    return table


def _estimate(entry: Mapping[str, Any]) -> str:
    value, low, high = (entry.get(key) for key in ("value", "low", "high"))
    if low is None or high is None:
        return _number(value)
    interval = escape(f"[{plain(low, 3)}, {plain(high, 3)}]")
    return f"{_number(value)} [dim]{interval}[/dim]"


def _number(value: float | None) -> str:
    return "–" if value is None else plain(value, 3)
