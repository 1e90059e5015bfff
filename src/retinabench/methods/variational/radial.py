"""Radial Bayesian network (Farquhar et al. 2020): the weights' noise has a uniform direction and a normal length.

**Idea.** A Gaussian in D dimensions has nearly all its mass at distance sqrt(D) from the mean: samples of a
large layer are never near the mean, and gradients are noisy. The radial posterior has a uniform direction and a
normal length.

**Equation.** w = μ + σ ∘ r z / ‖z‖, z ~ N(0, I), r ~ N(0, 1), over the layer's whole weight. The objective is
MFVI's. The KL from N(m, τ²) is closed, constants included, since E[ε_i²] = 1 / D:

    KL = Σ [(σ² / D + (μ - m)²) / 2τ² + log τ + log(2π) / 2 - log σ] - H_D
    H_D = log(π^{D/2} / Γ(D/2)) + log(2π) / 2 + 1/2 - (D - 1) (γ + log 2) / 2

For D = 1 this is the Gaussian's. The paper and the released code estimate the cross-entropy by samples.

**Settings.** Those of MFVI, with `stddev_mean_init` 0.1, and `norm`: `layer`, or `per_filter` as released. With
`layer` the noise of a layer has length σ |r| beside a weight of length sqrt(2 · outputs), whatever the number
of inputs.

**As published.** The released code normalises over the last axis of the weight alone, the outputs of each input
position, with one r for the layer: the noise is sqrt(input positions) longer, and the weights lie on a set
without volume, so that there is no KL. Its entropy is log Σ σ where Σ log σ is meant. `norm = "per_filter"`
draws as released; its KL is the sum over the vectors of the KL of each one's marginal, with Σ log σ.

**Cost.** As MFVI.

**When it fails.** Values of σ that were tuned for `per_filter` (published: 0.00002 to 0.013) are too small for
`layer`: the samples are then the mean for all purposes, and the method is MAP. The KL is least at σ = sqrt(D)
τ, far from any useful start, and what is said of ρ under MFVI holds here. A last layer with few, small weights
gets relatively more noise.

**Tested.** The norm is half-normal whatever D, by filter in the released variant; KL and entropy against Monte
Carlo with the density written out, and against the Gaussian for D = 1.

**Source.** Farquhar, Osborne & Gal 2020.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.variational.elbo import WeightConfig, around_weights, elbo
from retinabench.models.stochastic.variational import FAMILIES


class Config(WeightConfig):
    """norm: over what the noise is normalised.

    `layer`: the layer's whole weight, as in the paper. `per_filter`: the outputs of each input position, as released.
    The other options are those of MFVI. The noise of a layer has length σ, where MFVI's has σ sqrt(D), and the weight about
    sqrt(2 · outputs): the default moves it by a share like MFVI's.
    """

    title = "Radial"

    name: Literal["radial"] = "radial"
    stddev_mean_init: float = Field(0.1, gt=0)
    norm: Literal["layer", "per_filter"] = "layer"

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("the noise's law is not the one whose divergence from the prior is taken")


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put radial posteriors around the weights and return the posterior."""
    options = as_config(run, Config)
    family = FAMILIES["radial" if options.norm == "layer" else "radial_per_filter"]
    return SampledPosterior(around_weights(model, options, family, run.seed), likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put radial posteriors around the weights, train them and return the posterior."""
    posterior = build(model, run, likelihood)
    objective = elbo(posterior, batches, run, as_config(run, Config))
    return train(posterior, batches, run, checkpoint, objective=objective)
