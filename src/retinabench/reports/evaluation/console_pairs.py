"""Two models side by side, and a frozen threshold on new cameras: tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import plain


def comparison_table(found: Mapping[str, Any]) -> Table:
    """Return the table of `Comparison.to_dict()`: every score of every set, a, b, a - b with its interval."""
    caption = f"a = {found['a']}\nb = {found['b']}\nbetter: after Holm's correction over the scores of a set"
    table = _table(escape(caption))
    table.add_column("", overflow="fold")
    for title in ("a", "b", "a - b", "p (Holm)", "better"):
        table.add_column(title, justify="right", no_wrap=True)
    for key, one in found["sets"].items():
        table.add_row(f"[bold]{SET_LABELS[key]}[/bold]", *[""] * 5)
        for name, entry in one["scores"].items():
            difference = _estimate(entry, "difference", signed=True)
            p = _number(entry.get("p_holm"))
            better = entry.get("better") or ""
            table.add_row(name, _number(entry.get("a")), _number(entry.get("b")), difference, p, better)
        table.add_section()
    return table


def transfer_table(found: Mapping[str, Any]) -> Table:
    """Return the table of `Transfer.to_dict()`: the frozen threshold, and what it does on each set."""
    table = _table(escape(_threshold(found)))
    table.add_column("", no_wrap=True)
    for title in ("images", "referred", "error of\nthe answered", "resembles\nvalidation", "guarantee"):
        table.add_column(title, justify="right", no_wrap=True)
    for key, one in found["sets"].items():
        alike = one.get("resemblance")
        table.add_row(
            "Validation" if key == "validation" else SET_LABELS[key],
            f"{one['images']:,}",
            _estimate(one["referral_rate"], "value"),
            _estimate(one["selective_risk"], "value"),
            "" if alike is None else ("no" if alike["void"] else "not refuted"),
            one.get("guarantee", ""),
        )
    return table


def _threshold(found: Mapping[str, Any]) -> str:
    """Say what was frozen, or that nothing could be."""
    threshold, certificate = found["threshold"], found["certificate"]
    if threshold is None:
        return f"No threshold: {(certificate or found['choice'])['why']}"
    everyone = isinstance(threshold, str)  # infinity, as JSON can hold it
    said = "answer every image" if everyone else f"refer above an uncertainty of {plain(threshold, 4)}"
    return f"Frozen on validation: {said}" + (", certified" if certificate else "")


def _table(caption: str) -> Table:
    return Table(
        caption=caption, caption_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _estimate(entry: Mapping[str, Any], name: str, *, signed: bool = False) -> str:
    value, low, high = (entry.get(key) for key in (name, "low", "high"))
    if value is None or low is None or high is None:
        return _number(value)
    ends = f"{plain(low, 3, signed=signed)} … {plain(high, 3, signed=signed)}"
    return f"{plain(value, 3, signed=signed)}\n[dim]{ends}[/dim]"


def _number(value: float | None) -> str:
    return "–" if value is None else plain(value, 3)
