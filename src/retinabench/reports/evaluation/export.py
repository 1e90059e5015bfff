"""The numbers of a report as files: `scores.json` (a record per predictions file) and `table.csv` (one long table)."""

from __future__ import annotations

import math
from typing import Any

from retinabench.metrics.selective import half_referred
from retinabench.reports.evaluation.evaluation import LEAD, REPLICATED, Evaluation
from retinabench.reports.evaluation.set_statistics import quantities
from retinabench.reports.toolkit.number_format import Quantity
from retinabench.reports.toolkit.renderers import csv_bytes


def score_records(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return, per file, the method's name under `entry`, `Scores.to_dict()`, and what the report adds to it.

    `report` holds, per set, the numbers of the page that `score` does not give (half of the images referred);
    `controls`, at the leading method, random and oracle referral.
    """
    records = []
    for i, method in enumerate(evaluation.methods):
        for k, scores in enumerate(evaluation.files[i]):
            record = {"entry": method.name, **scores.to_dict(), "report": _added(evaluation, i, k)}
            if i == evaluation.leader and k == 0:
                sets = [name for name in evaluation.sets if (i, name) in evaluation.cases]
                record["controls"] = {name: _controls(evaluation, name) for name in sets}
            records.append(record)
    return records


def table_csv(evaluation: Evaluation) -> bytes:
    """Return every number of the evaluation in one long table, with all digits."""
    rows: list[list[object]] = []
    for (i, name, score), quantity in sorted(evaluation.estimates.items(), key=lambda item: item[0]):
        method = evaluation.methods[i]
        rows.append([method.name, name, score, *_parts(quantity), len(method.predictions)])
    for (i, score), quantity in sorted(evaluation.changes.items()):
        method = evaluation.methods[i]
        files = len(method.predictions)
        rows.append([method.name, "shifted_minus_in_domain", score, *_parts(quantity), files])
    for lead in evaluation.leads():
        assert lead.gap.place is not None
        rows.append([lead.gap.place.entry, lead.set, LEAD, *_parts(lead.gap), ""])
    header = ["method", "set", "score", "value", "low", "high", "standard_error", "files"]
    return csv_bytes(header, rows)


def _controls(evaluation: Evaluation, name: str) -> dict[str, dict[str, float]]:
    return {
        kind: {score: value for score, value in values.items() if math.isfinite(value)}
        for kind, values in evaluation.controls(name).items()
    }


def _added(evaluation: Evaluation, i: int, file: int) -> dict[str, Any]:
    added: dict[str, Any] = {}
    for name in evaluation.sets:
        if (i, name) not in evaluation.replicates or file >= len(evaluation.replicates[i, name][0]):
            continue
        values, replicates = (array[file : file + 1] for array in evaluation.replicates[i, name])
        found = zip(REPLICATED, quantities(values, replicates), strict=True)
        added[name] = {key: _finite(quantity) for key, quantity in found if key in half_referred.NAMES}
    return added


def _finite(quantity: Quantity) -> dict[str, float | None]:
    parts = {"value": quantity.value, "low": quantity.low, "high": quantity.high}
    return {key: part if math.isfinite(part) else None for key, part in parts.items()}


def _parts(quantity: Quantity) -> tuple[float, ...]:
    return quantity.value, quantity.low, quantity.high, quantity.error
