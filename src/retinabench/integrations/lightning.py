"""Scores of every validation and test of a Lightning training, logged beside the module's own.

    trainer = lightning.Trainer(callbacks=[ScoreCallback()])

`validation_step` and `test_step` return `{"logits": logits, "label": label}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from retinabench.core.errors import InputError
from retinabench.integrations.pytorch import DEFAULT_SCORES
from retinabench.integrations.torchmetrics import ReferralScores


class ScoreCallback(Callback):
    """Logs `validation/SCORE` and `test/SCORE`, over the images of all processes; the arguments are those of `ReferralScores`."""

    def __init__(
        self, scores: Sequence[str] = DEFAULT_SCORES, referable_from: int | None = None, sample_dim: int | None = None
    ) -> None:
        self.metric = ReferralScores(scores, referable_from, sample_dim)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.metric.reset()
        self.metric.to(pl_module.device)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any, **__: Any
    ) -> None:
        if not isinstance(outputs, Mapping) or not {"logits", "label"} <= set(outputs):
            hint = 'Return {"logits": logits, "label": label} from validation_step and test_step.'
            raise InputError(f"the {trainer.state.stage or 'validation'} step returns no logits and label", hint=hint)
        self.metric.update(outputs["logits"], outputs["label"])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._log(pl_module, "validation")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._log(pl_module, "test")

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end

    def _log(self, module: LightningModule, stage: str) -> None:
        module.log_dict({f"{stage}/{name}": value for name, value in self.metric.compute().items()})
