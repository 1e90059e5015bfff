"""Scores of every validation of a Lightning training, logged beside the module's own.

    trainer = lightning.Trainer(callbacks=[ScoreCallback()])

`validation_step` returns `{"logits": logits, "label": label}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from retinabench.core.errors import InputError
from retinabench.integrations.pytorch import DEFAULT_SCORES
from retinabench.integrations.torchmetrics import ReferralScores


class ScoreCallback(Callback):
    """Logs `validation/SCORE` at the end of every validation, over the images of all processes."""

    def __init__(
        self, scores: Sequence[str] = DEFAULT_SCORES, referable_from: int | None = None, prefix: str = "validation/"
    ) -> None:
        self.metric, self.prefix = ReferralScores(scores, referable_from), prefix

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.metric.reset()
        self.metric.to(pl_module.device)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not isinstance(outputs, Mapping) or not {"logits", "label"} <= set(outputs):
            raise InputError(
                "the validation step returns no logits and label",
                hint='Return {"logits": logits, "label": label} from validation_step.',
            )
        self.metric.update(outputs["logits"], outputs["label"])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = self.metric.compute()
        pl_module.log_dict({f"{self.prefix}{name}": value for name, value in found.items()})
