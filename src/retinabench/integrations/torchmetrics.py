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

from retinabench.core.errors import InputError
from retinabench.integrations.pytorch import DEFAULT_SCORES, check_scores, predictions_of, scores_of


class ReferralScores(Metric):
    """Scores of the images seen since the last reset.

    The scores rank images, so that all outputs are kept until the end: 4 bytes times C for each image. Outputs are (B,), (B, 1) or
    (B, C). Where they hold S posterior samples, `sample_dim` names their axis: 1 of (B, S, C) or (B, S), 0 of (S, B, C).
    """

    full_state_update = False
    higher_is_better = None
    logits: list[Tensor]
    label: list[Tensor]

    def __init__(
        self, scores: Sequence[str] = DEFAULT_SCORES, referable_from: int | None = None, sample_dim: int | None = None
    ) -> None:
        super().__init__()
        self.scores, self.referable_from, self.sample_dim = check_scores(scores), referable_from, sample_dim
        for name in ("logits", "label"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, logits: Tensor, label: Tensor) -> None:
        """Add a batch; `logits` as above, `label` (B,)."""
        outputs, drawn = logits.detach().float(), self.sample_dim is not None
        if self.sample_dim is not None and self.sample_dim < outputs.ndim:
            outputs = outputs.movedim(self.sample_dim, 1)
        if outputs.ndim == 1 + drawn:
            outputs = outputs[..., None]
        if outputs.ndim != 2 + drawn or len(outputs) != len(label):
            raise InputError(
                f"logits of {len(label)} images have the shape {tuple(logits.shape)}",
                hint="Give (B,), (B, 1) or (B, C); of posterior samples (B, S, C) say sample_dim=1, of (S, B, C) sample_dim=0.",
            )
        self.logits.append(outputs.clone())
        self.label.append(label.detach().clone())

    def compute(self) -> dict[str, Tensor]:
        logits, label = dim_zero_cat(self.logits).cpu().numpy(), dim_zero_cat(self.label).cpu().numpy()
        found = scores_of(predictions_of(logits, {"label": label}, referable_from=self.referable_from), self.scores)
        return {name: torch.tensor(value) for name, value in found.items()}
