"""Rank-1 Bayesian network (Dusenberry et al. 2020): distributions over two vectors per layer, a point for the rest.

**Idea.** Uncertainty in a rank-1 factor of each weight is cheap enough to have a draw per image, and K such
factors are K ensemble members in one network that share everything else.

**Equation.** W_k = W ∘ (s_k r_kᵀ): y = s ∘ (W (r ∘ x)) + b, with r_k and s_k Gaussian, W a point with the L2
term.

    1/K Σ_k { E_{q_k}[CE] + a(t) T KL(q_k ‖ p) / N } + l2 Σ W²

KL is convex, so the mean over components bounds the mixture's divergence, by at most log K too much. While
training, image b of a batch belongs to component b mod K, with noise of its own; posterior sample n is
component n mod K, with one draw for all images. Hence `samples` is a multiple of `components`.

**Settings.** `components` 1. `positive` 0.75: share of factors that start at +1, the others at -1.
`prior_mean`, `prior_stddev` 0.05. `fast_lr` 1: learning rate of the distributions relative to W's. `clip`,
`fast_norms`: as released. Those of the objective as for MFVI.

**The prior.** A row of W and its factor may both change sign and leave the network as it is, so a prior that
knows only N(1, τ²) is arbitrary; it costs 800 nats for every factor that starts at -1, 10 million for
ResNet-50. `prior_mean = "sign"` is the symmetric mixture of N(1, τ²) and N(-1, τ²), up to log 2 that of its
nearer half, and does not have this conflict.

**As published.** `prior_mean = "one"`, `clip = 10`, `fast_norms = true` (the released test for norms missed
their names, so they had the distributions' learning rate), `components = 1` (the released mixture was not
implemented).

**Cost.** 2 (inputs + outputs) K more parameters per layer. A training step multiplies every layer's input and
output once more. A prediction with S samples is S passes.

**When it fails.** A component sees 1 / K of the images, and signs start the members far apart: in a short
training a mixture lags behind (synthetic images, 12 epochs of 19 steps, one seed: validation AUROC 0.915,
0.887, 0.839 for K = 1, 2, 5). With K = 1 and the published τ the samples differ little.

**Tested.** Components against the plain network with the weight multiplied out; the KL against the closed form
and, for `sign`, against the integral over the mixture; ResNet-50 has 108 terms and 23,665,481 values, as the
reference counts.

**Source.** Dusenberry et al. 2020; Wen et al. 2020 (BatchEnsemble).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import make_optimizer, train
from retinabench.methods.variational.elbo import VariationalConfig, elbo
from retinabench.models.stochastic.drawing import Affine, swap
from retinabench.models.stochastic.shared_weights import Rank1


class Config(VariationalConfig):
    """Options of rank-1 beside the shared ones.

    components: K, of which samples is a multiple; each sees 1 / K of the images, so a mixture needs more epochs. positive: probability that a component's factor starts at +1, not -1.
    prior_mean: `sign`, the nearer of +1 and -1, or `one`, as released. prior_stddev: of that prior.
    fast_lr: learning rate of the distributions of r and s relative to the others'.
    fast_norms: let it act on norms too, as released. clip: cuts samples of r and s at ±, 10 as released, None ours.
    """

    title = "Rank-1"

    name: Literal["rank1"] = "rank1"
    components: int = Field(1, ge=1)
    positive: float = Field(0.75, ge=0, le=1)
    prior_mean: Literal["sign", "one"] = "sign"
    prior_stddev: float = Field(0.05, gt=0)
    fast_lr: float = Field(1.0, gt=0)
    fast_norms: bool = False
    clip: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _equal_shares(self) -> Config:
        if self.samples % self.components:
            raise ValueError(
                f"samples ({self.samples}) is no multiple of components ({self.components}), "
                "whose shares must be equal"
            )
        return self

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("random factors of two vectors per layer; the weights themselves are points")


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put distributions over r and s into every layer and return the posterior."""
    options = as_config(run, Config)
    generator = torch_generator("cpu", run.seed, "variational")

    def make(layer: Affine) -> nn.Module:
        return Rank1(
            layer,
            components=options.components,
            positive=options.positive,
            prior_mean=options.prior_mean,
            prior_stddev=options.prior_stddev,
            clip=options.clip,
            generator=generator,
        )

    return SampledPosterior(swap(model, make), likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put distributions over r and s into every layer, train them and return the posterior."""
    posterior, options = build(model, run, likelihood), as_config(run, Config)
    optimizer = make_optimizer(posterior.model, run.optimizer)
    set_pace(optimizer, fast_parameters(posterior.model, norms=options.fast_norms), options.fast_lr)
    objective = elbo(posterior, batches, run, options)
    return train(posterior, batches, run, checkpoint, objective=objective, optimizer=optimizer)


def fast_parameters(model: nn.Module, *, norms: bool) -> list[nn.Parameter]:
    """Return the parameters of the distributions of r and s, and those of batch norms on demand."""
    found = [p for module in model.modules() if isinstance(module, Rank1) for p in module.fast_weights()]
    if norms:
        found += [
            p for module in model.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()
        ]
    return found


def set_pace(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], lr_factor: float) -> None:
    """Move `parameters` into groups of their own with this factor on the learning rate; all else of them stays."""
    chosen = {id(p) for p in parameters}
    for group in list(optimizer.param_groups):
        moved = [p for p in group["params"] if id(p) in chosen]
        if moved:
            group["params"] = [p for p in group["params"] if id(p) not in chosen]
            optimizer.add_param_group({**group, "params": moved, "lr_factor": lr_factor})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
