"""Deterministic baseline of 2019: a network trained with dropout, whose dropout is off when it predicts (Srivastava et al. 2014).

**Idea.** The control of Filos et al. 2019: *the same* trained weights as MC dropout, which tells what sampling the masks
adds, apart from what training with them does.

    p(y | x) = softmax f_θ(x) with every mask at its mean, 1, and θ of the run of `member`

**Settings.** `member`: MC dropout, with its own settings. The run of the member is computed, or found done, and its weights
are used: nothing is trained twice.

**Cost.** One pass per prediction, S = 1.

**When it fails.** As MAP: it has no epistemic uncertainty. `map` trains without dropout and is another network.

**Source.** Filos et al. 2019, section 3.3; Srivastava et al. 2014, Dropout, JMLR 15.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods import dropout
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import (
    AnyMethod,
    MethodConfig,
    Optimizer,
    TargetPosterior,
    TrainingRun,
    WithMember,
    member_run,
    method_config,
    no_target,
)
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.models.stochastic.dropout import Dropout, add_dropout


class Config(WithMember):
    """member: MC dropout, whose weights are used."""

    title = "Deterministic"

    name: Literal["dropout_off"] = "dropout_off"
    samples: Literal[1] = 1
    member: AnyMethod = Field(default_factory=lambda: method_config("dropout"))

    @field_validator("member")
    @classmethod
    def _has_dropout(cls, member: MethodConfig) -> MethodConfig:
        if not isinstance(member, dropout.Config):
            raise ValueError(f"'{member.name}' has no dropout to switch off. Set member.name=dropout")
        return member

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("one network, trained with noise on activations", optimizer.target(points, ""))


def trained_by(run: TrainingRun) -> TrainingRun:
    """Return the run of MC dropout, whose weights are used."""
    return member_run(run)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> PointPosterior:
    """Put dropout into the network, so that its parameters are named alike, and switch it off."""
    return PointPosterior(add_dropout(model, 0.0), likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> PointPosterior:
    """Train MC dropout and return its network without dropout; where the runs are kept, `trained_by` saves this."""
    trained = dropout.fit(model, batches, trained_by(run), checkpoint, likelihood)
    return PointPosterior(_without_dropout(trained.model), likelihood)


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, Dropout):
            module.steps = 0
    return model
