"""The report's outcomes at other thresholds: the grids of the methods, and what the page's sliders show of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retinabench.core.results import JsonObject
from retinabench.metrics.clinical.decision_curve import SEVERE
from retinabench.metrics.clinical.screening import Screened
from retinabench.metrics.clinical.thresholds import referral_rule
from retinabench.metrics.policies import MOST_GROUPS, PolicyGrid, PolicyOutcome, policy_grid
from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.examples import ImageSource, data_uri
from retinabench.reports.toolkit.pages import Explorer, Thumbnails, explorer

READER = (0.9, 0.95)
"""Sensitivity and specificity of the reader of the referred images, as `clinic` states them by default."""
MOST_METHODS = 4
THUMBNAIL_SIDE = 170
IMAGES_PER_HOUR = 60.0


@dataclass(frozen=True)
class Pathway:
    """What the leading method and the reader do on one set at the stated pair of thresholds: numbers of images, of referable ones missed without referral (`alone`), the same of grade 3 and 4 (None without grades), and the outcome with referral."""

    set: str
    positives: int
    severe: int | None
    alone: int
    severe_alone: int
    outcome: PolicyOutcome


def policy_grids(evaluation: Evaluation) -> dict[int, PolicyGrid]:
    """Return the grids of the leading method and the next ones, of the first file of each."""
    others = [i for i in range(len(evaluation.methods)) if i != evaluation.leader]
    order = [evaluation.leader, *others][:MOST_METHODS]
    return {i: _grid(evaluation, i, MOST_GROUPS // len(order)) for i in order}


def _grid(evaluation: Evaluation, i: int, most_groups: int) -> PolicyGrid:
    predictions, threshold = evaluation.methods[i].predictions[0], evaluation.files[i][0].threshold
    rule = referral_rule(
        predictions,
        evaluation.settings.uncertainty,
        threshold.value,
        threshold=None,
        rate=evaluation.settings.referred,
    )
    stated = Screened(threshold, rule, (), READER, 0.0, IMAGES_PER_HOUR, None)
    return policy_grid(predictions, stated, most_groups=most_groups)


def pathways(evaluation: Evaluation, grids: dict[int, PolicyGrid]) -> list[Pathway]:
    """Return what the leading method does at the stated pair, by set."""
    found, grid = [], grids[evaluation.leader]
    i, j = grid.frozen
    for name, groups in grid.outcomes.items():
        case = evaluation.first(evaluation.leader, name)
        assert case is not None, "a set with outcomes has images"
        severe = np.zeros(len(case), bool) if case.grade is None else (case.grade >= SEVERE) & case.label
        lost = case.label & ~case.called
        found.append(
            Pathway(
                name, int(case.label.sum()), None if case.grade is None else int(severe.sum()), int(lost.sum()),
                int((lost & severe).sum()), groups[""][i][j],
            )
        )  # fmt: skip
    return found


def page_explorer(
    evaluation: Evaluation, grids: dict[int, PolicyGrid], images: ImageSource | None
) -> Explorer:
    """Return the sliders of the page.

    Shapes: `images` (H, W, 3).
    """
    named = {evaluation.methods[i].name: grid for i, grid in grids.items()}
    return explorer(named, READER, None if images is None else _thumbnails(images))


def _thumbnails(images: ImageSource) -> Thumbnails:
    def thumbnail(image_id: str) -> str:
        image = images(image_id)
        return "" if image is None else data_uri(image, THUMBNAIL_SIDE)[0]

    return thumbnail


def policy_records(evaluation: Evaluation, grids: dict[int, PolicyGrid]) -> JsonObject:
    """Return all numbers of the sliders for `policies.json`."""
    entries = [{"entry": evaluation.methods[i].name, **grid.to_dict()} for i, grid in grids.items()]
    return {"schema": "retinabench.policies/1", "reader": list(READER), "entries": entries}
