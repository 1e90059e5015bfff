"""The table for the terminal: methods x sets with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from retinabench.report.marking import plain

COLUMNS = {
    "auroc": "AUROC ↑",
    "accuracy": "accuracy ↑",
    "nll": "NLL ↓",
    "referral_accuracy_area": "referral area ↑",
    "failure_auroc": "error AUROC ↑",
}
SETS = {"in_domain": "in-domain", "shifted": "shifted", "joint": "joint"}


def console_table(scores: Sequence[Mapping[str, Any]], columns: Mapping[str, str] = COLUMNS) -> Table:
    """Return the table of score dictionaries, as `scores.json` of a report holds them.

    scores: `Scores.to_dict()` of each file, with the method's name under `entry` (else the file's metadata names it).
    Files of one name are seeds of one method: their mean and its standard error are shown, else the value and its
    95 % interval. Where a dictionary has `controls`, random and oracle referral follow.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for found in scores:
        name = found.get("entry") or found.get("metadata", {}).get("method") or "model"
        groups.setdefault(str(name), []).append(found)
    table = Table(caption="[value, 95 % interval over patients]", caption_justify="left", header_style="bold")
    table.add_column("set")
    table.add_column("method")
    for label in columns.values():
        table.add_column(label, justify="right")
    present = [key for key in SETS if any(key in found["sets"] for found in scores)]
    for key in present:
        for name, files in groups.items():
            blocks = [found["sets"][key]["scores"] for found in files if key in found["sets"]]
            if blocks:
                table.add_row(SETS[key], escape(name), *(_cell(blocks, score) for score in columns))
        for control, values in _controls(scores, key).items():
            cells = (plain(values[score], 3) if score in values else "" for score in columns)
            table.add_row(SETS[key], escape(f"  {control}"), *cells, style="dim")
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
    mean = float(np.mean(values))
    if len(values) > 1:
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return f"{plain(mean, 3)} ± {plain(error, 3)}"
    low, high = found[0].get("low"), found[0].get("high")
    if low is None or high is None:
        return plain(mean, 3)
    return f"{plain(mean, 3)} [dim]{escape(f'[{plain(low, 3)}, {plain(high, 3)}]')}[/dim]"
