"""MAP: one network at the maximum of the (L2-penalised) likelihood.

**Idea.** One network at the maximum of the penalised likelihood: the baseline that every other method must beat.

    θ* = argmin_θ  mean_n CE(y_n, f_θ(x_n)) + l2 Σ w²

**Settings.** None of its own; `optimizer` has them all. `optimizer.select` chooses the epoch that predicts.

**Cost.** One pass per step, one per prediction. S = 1.

**When it fails.** It has no epistemic uncertainty: the entropy of its one prediction is all that can order a referral,
and it holds nothing of what the training images leave undetermined. Under a new camera it errs with confidence.

**Released Retina Benchmark.** Its L2 term sums an empty list (`optimizer.l2_on = "nothing"`).

**Source.** Band et al. 2021, Benchmarking Bayesian Deep Learning on Diabetic Retinopathy Detection Tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from retinabench.data.loader import Batches
from retinabench.methods.base import ADAM, fidelity_entry
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.posterior import NetworkOnly


class Config(MethodConfig):
    """MAP has no hyper-parameters beyond the optimiser's."""

    title = "MAP"
    approximates = "its mode"

    name: Literal["map"] = "map"
    samples: Literal[1] = 1


@dataclass
class PointPosterior(NetworkOnly):
    """All mass on one network."""

    model: nn.Module
    likelihood: Likelihood

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (1, B, C): more samples would be copies."""
        self.model.eval()
        return self.likelihood.predictive(self.model(images))[None]


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> PointPosterior:
    return PointPosterior(model, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> PointPosterior:
    return train(build(model, run, likelihood), batches, run, checkpoint)


FIDELITY = (
    fidelity_entry(
        "map", "MAP", {}, ADAM, tuned={"optimizer.lr": ({100: 0.0068, 1000: 0.00068, "large": 0.0068}, 0.0085)}
    ),
)
