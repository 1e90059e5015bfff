"""Tables for the terminal, within 80 columns: scores, two models side by side, and a frozen threshold.

They read what `score`, `compare` and `transfer` write as JSON, so that files written earlier can be shown as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group

from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import COUNT, NumberFormat, plain
from retinabench.reports.toolkit.renderers import to_terminal
from retinabench.reports.toolkit.tables import UNDEFINED, Block, Cell, Column, Row, Table

COLUMNS = ("auroc", "accuracy", "nll", "referral_accuracy_area")
SETS = ("in_domain", "shifted", "joint")
SIGNED = NumberFormat(3, signed=True)


def scores_table(scores: Sequence[Mapping[str, Any]]) -> Group:
    """Return the table of score dictionaries, as `scores.json` of a report holds them.

    Args:
        scores: `Scores.to_dict()` of each file, with the method's name under `entry` (else the file's metadata names
            it). Files of one name are seeds of one method: their mean is shown with its standard error, a single file
            with its 95 % interval. Where a dictionary has `controls`, random and oracle referral follow.

    Returns:
        A table for `rich.console.Console.print`.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for found in scores:
        name = found.get("entry") or found.get("metadata", {}).get("method") or "model"
        groups.setdefault(str(name), []).append(found)
    # Long headers would take the width of the names.
    columns = [
        Column(SCORES[score].heading.replace(", ", ",\n").replace("Referral ", "Referral\n"))
        for score in COLUMNS
    ]
    blocks = []
    for key in (key for key in SETS if any(key in found["sets"] for found in scores)):
        rows = []
        for name, files in groups.items():
            found_scores = [found["sets"][key]["scores"] for found in files if key in found["sets"]]
            if found_scores:
                rows.append(Row(name, [_score_cell(found_scores, score) for score in COLUMNS]))
        controls: Mapping[str, Mapping[str, float]] = next(
            (found["controls"][key] for found in scores if key in found.get("controls", {})), {}
        )
        for control, values in controls.items():
            cells = [Cell.number(values[score]) if score in values else Cell() for score in COLUMNS]
            rows.append(Row(control, cells, control=True))
        blocks.append(Block(columns, rows, SET_LABELS[key]))
    note = "Below each value: its 95 % interval over patients, or ± the standard error over seeds."
    return to_terminal(Table("", blocks, note=note))


def _score_cell(blocks: Sequence[Mapping[str, Any]], score: str) -> Cell:
    found = [block[score] for block in blocks if score in block]
    values = [one["value"] for one in found if one["value"] is not None]
    if not values or len(values) < len(found):
        return UNDEFINED
    if len(values) > 1:
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return Cell.number(float(np.mean(values)), error=error)
    return Cell.number(values[0], found[0].get("low"), found[0].get("high"))


def comparison_table(found: Mapping[str, Any]) -> Group:
    """Return the table of `Comparison.to_dict()`: every score of every set, a, b, and a - b with its interval."""
    columns = [Column(title) for title in ("a", "b", "a - b", "p (Holm)", "better")]
    blocks = []
    for key, one in found["sets"].items():
        rows = []
        for name, entry in one["scores"].items():
            difference = (entry.get(part) for part in ("difference", "low", "high"))
            numbers = [
                Cell.number(entry.get("a")),
                Cell.number(entry.get("b")),
                Cell.number(*difference, form=SIGNED),
            ]
            rows.append(
                Row(name, [*numbers, Cell.number(entry.get("p_holm")), Cell(entry.get("better") or "")])
            )
        blocks.append(Block(columns, rows, SET_LABELS[key]))
    note = f"a = {found['a']}\nb = {found['b']}\nbetter: after Holm's correction over the scores of a set"
    return to_terminal(Table("", blocks, note=note))


def transfer_table(found: Mapping[str, Any]) -> Group:
    """Return the table of `Transfer.to_dict()`: the frozen threshold, and its effect on each set."""
    heads = ("images", "referred", "error of\nretained", "resembles\nvalidation", "guarantee")
    rows = []
    for key, one in found["sets"].items():
        rates = [
            Cell.number(*(one[rate].get(part) for part in ("value", "low", "high")))
            for rate in ("referral_rate", "selective_risk")
        ]
        alike = one.get("resemblance")
        verdict = "" if alike is None else "no" if alike["void"] else "not refuted"
        label = "Validation" if key == "validation" else SET_LABELS[key]
        cells = [
            Cell.number(one["images"], form=COUNT),
            *rates,
            Cell(verdict),
            Cell(one.get("guarantee", "")),
        ]
        rows.append(Row(label, cells))
    return to_terminal(Table.of("", [Column(head) for head in heads], rows, note=_threshold(found)))


def _threshold(found: Mapping[str, Any]) -> str:
    """Return the sentence about the threshold that was frozen, or why there is none."""
    threshold, certificate = found["threshold"], found["certificate"]
    if threshold is None:
        return f"No threshold: {(certificate or found['choice'])['why']}"
    infinite = isinstance(threshold, str)  # JSON has no infinity
    rule = "refer no image" if infinite else f"refer above an uncertainty of {plain(threshold, 4)}"
    return f"Frozen on validation: {rule}" + (", certified" if certificate else "")
