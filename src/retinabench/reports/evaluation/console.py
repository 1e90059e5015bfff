"""The table for the terminal: methods x sets with intervals, within 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import plain

COLUMNS = ("auroc", "accuracy", "nll", "referral_accuracy_area")
SETS = ("in_domain", "shifted", "joint")


def console_table(scores: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> Table:
    """Return the table of score dictionaries, as `scores.json` of a report holds them.

    scores: `Scores.to_dict()` of each file, with the method's name under `entry` (else the file's metadata names it).
    Files of one name are seeds of one method: their mean is shown with its standard error below, else the value with
    its 95 % interval below. Where a dictionary has `controls`, random and oracle referral follow.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for found in scores:
        name = found.get("entry") or found.get("metadata", {}).get("method") or "model"
        groups.setdefault(str(name), []).append(found)
    caption = "Below each value: its 95 % interval over patients, or ± the standard error over seeds."
    table = Table(
        caption=caption, caption_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("", overflow="fold")
    for score in columns:
        table.add_column(SCORES[score].heading, justify="right", no_wrap=True)
    for key in (key for key in SETS if any(key in found["sets"] for found in scores)):
        table.add_row(f"[bold]{SET_LABELS[key]}[/bold]", *("" for _ in columns))
        for name, files in groups.items():
            blocks = [found["sets"][key]["scores"] for found in files if key in found["sets"]]
            if blocks:
                table.add_row(escape(name), *(_cell(blocks, score) for score in columns))
        for control, values in _controls(scores, key).items():
            cells = (plain(values[score], 3) if score in values else "" for score in columns)
            table.add_row(escape(control), *cells, style="dim")
        table.add_section()
    return table


def _controls(scores: Sequence[Mapping[str, Any]], key: str) -> dict[str, Mapping[str, float]]:
    for found in scores:
        if key in found.get("controls", {}):
            return dict(found["controls"][key])
    return {}


def _cell(blocks: Sequence[Mapping[str, Any]], score: str) -> str:
    found = [block[score] for block in blocks if score in block]
    values = [one["value"] for one in found if one["value"] is not None]
    if not values or len(values) < len(found):
        return "–"
    mean = plain(float(np.mean(values)), 3)
    if len(values) > 1:
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return f"{mean}\n[dim]± {plain(error, 3)}[/dim]"
    low, high = found[0].get("low"), found[0].get("high")
    return mean if low is None or high is None else f"{mean}\n[dim]{plain(low, 3)}–{plain(high, 3)}[/dim]"
