"""The table of `retinabench transfer`, within 80 columns."""

from __future__ import annotations

import math

from rich.console import Group

from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import COUNT, plain
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal


def transfer_table(found: Transfer) -> Group:
    """Return the frozen threshold and its effect on each set."""
    heads = ("images", "referred", "error of\nretained", "resembles\nvalidation", "guarantee")
    rows = []
    for key, one in found.sets.items():
        alike = "" if one.resemblance is None else "no" if one.resemblance.void else "not refuted"
        label = "Validation" if key == "validation" else SET_LABELS[key]
        cells = [
            Cell.number(one.images, form=COUNT), _interval(one.referral_rate), _interval(one.selective_risk),
            Cell(alike), Cell(one.guarantee or ""),
        ]  # fmt: skip
        rows.append(Row(label, cells))
    return to_terminal(Table.of("", [Column(head) for head in heads], rows, note=_threshold(found)))


def _threshold(found: Transfer) -> str:
    """Return the sentence about the threshold that was frozen, or why there is none."""
    if found.threshold is None:
        return f"No threshold: {(found.certificate or found.choice).why}"
    infinite = math.isinf(found.threshold)
    rule = "refer no image" if infinite else f"refer above an uncertainty of {plain(found.threshold, 4)}"
    return f"Frozen on validation: {rule}" + (", certified" if found.certificate else "")


def _interval(one: Interval) -> Cell:
    return Cell.number(one.value, one.low, one.high)
