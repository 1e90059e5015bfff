"""The numbers of a page as `scores.json`: one dictionary per predictions file."""

from __future__ import annotations

import math
from typing import Any

from retinabench.metrics.selective import half_referred
from retinabench.reports.evaluation.evidence import Estimate, estimates
from retinabench.reports.evaluation.study import DRAWN, Study
from retinabench.reports.evaluation.tables import control_scores


def score_records(study: Study) -> list[dict[str, Any]]:
    """Return, per file, the method's name under `entry`, `Scores.to_dict()`, and what the report adds to it.

    `report` holds, per set, the numbers of the page that `score` does not give (half of the pictures referred);
    `controls`, at the leading method, random and oracle referral.
    """
    records = []
    for i, entry in enumerate(study.entries):
        for k, found in enumerate(study.files[i]):
            record = {"entry": entry.name, **found, "report": _added(study, i, k)}
            if i == study.leader and k == 0:
                record["controls"] = {
                    name: dict(
                        zip(("random referral", "oracle referral"), _controls(study, name), strict=True)
                    )
                    for name in study.sets
                    if (i, name) in study.cases
                }
            records.append(record)
    return records


def _controls(study: Study, name: str) -> list[dict[str, float]]:
    return [{k: v for k, v in found.items() if math.isfinite(v)} for found in control_scores(study, name)]


def _added(study: Study, i: int, file: int) -> dict[str, Any]:
    added: dict[str, Any] = {}
    for name in study.sets:
        if (i, name) not in study.draws or file >= len(study.draws[i, name][0]):
            continue
        values, draws = (array[file : file + 1] for array in study.draws[i, name])
        found = zip(DRAWN, estimates(values, draws), strict=True)
        added[name] = {key: _plain(estimate) for key, estimate in found if key in half_referred.NAMES}
    return added


def _plain(estimate: Estimate) -> dict[str, float | None]:
    parts = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {key: part if math.isfinite(part) else None for key, part in parts.items()}
