"""Scores as a torchmetrics metric: `update` on each batch, `compute` at the end of an epoch, over all processes.

metric = ReferralScores(("auroc", "referral_accuracy_area"))
metric.update(logits, labels)
metric.compute()  # {"auroc": tensor(0.91), "referral_accuracy_area": tensor(0.94)}
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from retinabench.integrations.pytorch import DEFAULT_SCORES, check_scores, predictions_of, scores_of


class ReferralScores(Metric):
    """Scores of the images seen since the last reset.

    The scores rank images, so that all outputs are kept until the end: 4 bytes times C for each image.
    """

    full_state_update = False
    higher_is_better = None
    logits: list[Tensor]
    label: list[Tensor]

    def __init__(self, scores: Sequence[str] = DEFAULT_SCORES, referable_from: int | None = None) -> None:
        super().__init__()
        self.scores, self.referable_from = check_scores(scores), referable_from
        for name in ("logits", "label"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, label: Tensor) -> None:
        """Add a batch; `logits`, `label` (B,)."""
        self.logits.append(logits.detach().float().reshape(len(logits), -1).clone())
        self.label.append(label.detach().clone())

    def compute(self) -> dict[str, Tensor]:
        """Return the scores by name, NaN where one is undefined."""
        logits, label = dim_zero_cat(self.logits).cpu().numpy(), dim_zero_cat(self.label).cpu().numpy()
        found = scores_of(predictions_of(logits, {"label": label}, referable_from=self.referable_from), self.scores)
        return {name: torch.tensor(value) for name, value in found.items()}
