"""Thresholds of their own for every group of a column (Mondrian): what is certified of the average need not hold for a site or a camera.

Every group is a study of its own, with its own validation and test images. With K groups in the column each is certified at delta / K, so that all
certificates hold together with probability at least 1 - delta; nothing is averaged over groups. A group in which nothing can be certified has no
threshold, and the expert reads its images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics.clinical.groups import group_labels
from retinabench.metrics.guarantees.transfer import Transfer
from retinabench.metrics.guarantees.triage import Triage
from retinabench.predictions.table import Predictions


@dataclass(frozen=True)
class Within(Document):
    """The rules of the groups of a column by value, and why others have none."""

    _schema = "retinabench.within/1"

    column: str
    delta: float | None
    groups: Mapping[str, Transfer | Triage]
    left_out: Mapping[str, str]


def within(
    predictions: Predictions,
    column: str,
    delta: float | None,
    choose: Callable[[Predictions, float | None], Transfer | Triage],
) -> Within:
    """Choose a rule in every group; `choose` takes its images and the share of delta of one group."""
    labels = group_labels(predictions, column)
    names = np.unique(labels).tolist()
    share = None if delta is None else delta / len(names)
    groups: dict[str, Transfer | Triage] = {}
    left_out: dict[str, str] = {}
    for name in names:
        value = name.removeprefix(f"{column}: ")
        try:
            groups[value] = choose(predictions.take(np.flatnonzero(labels == name)), share)
        except InputError as error:
            left_out[value] = error.problem
    if not groups:
        problem = f"no group can choose a threshold: {next(iter(left_out.values()))}"
        raise InputError(problem, file=predictions.source, column=column)
    return Within(column, delta, groups, left_out)
