"""VBLL: a variational Bayesian last layer, trained by a bound in closed form (Harrison et al. 2024).

**Idea.** The trunk φ is deterministic; the weights of each output of the last layer are Gaussian with correlations,
q(w) = N(m, S), so that the output is N(φᵀm, φᵀS φ). The loss is an upper bound of -ELBO / N in which nothing is sampled.

    loss = mean_n B(y_n; φ_nᵀm, φ_nᵀS φ_n) + 1/N KL( q(w) ‖ N(0, s² I) ),   S⁻¹ = Λ^½ (I + A Aᵀ) Λ^½

B ≥ E_q[-log p(y | f)]: exact for a regression, Jaakkola and Jordan's for two classes (tighter than the paper's, whose Jensen
bound is used for C classes; `training/expected_loss.py`). The paper's own noise on the logits is left out. The precision
is a diagonal Λ and A (D, R): with R = min(N, D) it holds the exact posterior of a linear regression, whose precision is the
prior's plus N terms of rank one. Biases are points, and so is what determines the noise of a regression.

**Settings.** `rank` R (at most D; 0 is mean-field), `prior_variance` s², `rate` (of Λ and A relative to the
network's), `samples`.

**Cost.** MAP's training, and per step O(C D R (B + R)). Predictions: one pass, and S draws of the last layer. Memory:
C D (R + 2) numbers, 0.2 million with D = 2,560 and R = 64; a dense S would take 6.6 million per output.

**When it fails.** Only the last layer is uncertain. With many more features than images most directions keep the prior's
width, and the prior decides how uncertain the predictions are. Directions beyond the R-th are as wide as Λ says.
The bound for C classes is loose where variances are large, and then makes S too small.

**Source.** Harrison, Willes and Snoek 2024, Variational Bayesian Last Layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective, mean_loss
from retinabench.methods.training.likelihood import Likelihood, expected_loss, random_outputs
from retinabench.methods.training.loop import make_optimizer, train
from retinabench.methods.training.posterior import NetworkOnly, precision, rewound
from retinabench.models.last_layer import SplitNetwork, split_last_layer

START = 0.1  # norm of a column of A; at 0 its gradient is 0


class Config(MethodConfig):
    """samples: draws of the last layer per prediction.

    rank: R, columns of A per output, at most the features. prior_variance: s²; by default that of the L2 term,
    1 / (2 N l2), so that the mean has the penalty of MAP. rate: learning rate of Λ and A relative to the network's.
    """

    title = "VBLL"

    name: Literal["vbll"] = "vbll"
    samples: int = Field(100, ge=1)
    rank: int = Field(64, ge=0)
    prior_variance: float | None = Field(None, gt=0)
    rate: float = Field(30.0, gt=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("the weights below the last layer and the biases are points")


class VariationalLinear(nn.Module):
    """A linear layer (O, D) whose first V rows are Gaussian; its biases and other rows are points.

    Row c has the covariance S = Λ^-½ (I + A Aᵀ)⁻¹ Λ^-½ with `log_scale` = log Λ^-½ (V, D) and `root` = A (V, D, R).
    """

    def __init__(self, layer: nn.Linear, random: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        weight, width = layer.weight.detach(), layer.in_features
        bias = layer.bias.detach() if layer.bias is not None else weight.new_zeros(layer.out_features)
        root = torch.randn(random, width, min(rank, width), generator=generator) * START / math.sqrt(width)
        self.mean, self.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
        self.log_scale = nn.Parameter(weight.new_zeros(random, width))
        self.root = nn.Parameter(root.to(weight.device))
        for parameter in (self.mean, self.log_scale, self.root):
            parameter.no_decay = True  # type: ignore[attr-defined]  # the divergence from the prior acts instead

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> the mean of the outputs, (B, O)."""
        return features @ self.mean.T + self.bias

    def variance(self, features: Tensor) -> Tensor:
        """(B, D) -> the variance of the first V outputs, (B, V)."""
        whitened = features * self.log_scale.exp()[:, None]  # (V, B, D)
        lost = self._solved(self.root.mT @ whitened.mT).square().sum(dim=1)
        return (whitened.square().sum(dim=2) - lost).clamp(min=1e-12).T

    def divergence(self, prior_variance: float) -> Tensor:
        """Return KL(q ‖ N(0, s² I)) in nats, a scalar, with the penalty |m|² / 2 s² of the rows that are points."""
        squares = self.log_scale.exp().square()
        trace = (squares * (1 - self._solved(self.root.mT).square().sum(dim=1))).sum()
        inner = self._factor().diagonal(dim1=1, dim2=2).log().sum()
        log_det = 2 * (self.log_scale.sum() - inner)
        size = self.log_scale.numel()
        outer = (trace + self.mean.square().sum()) / prior_variance
        return 0.5 * (outer - size + size * math.log(prior_variance) - log_det)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Draw weights (O, D): Λ^-½ (I + A Aᵀ)⁻¹ (ε + A η) has the covariance S."""
        random, width, rank = self.root.shape
        noise = torch.randn(random, width + rank, 1, generator=generator, device=self.root.device)
        noise = noise[:, :width] + self.root @ noise[:, width:]
        inner = torch.cholesky_solve(self.root.mT @ noise, self._factor())
        shift = self.log_scale.exp() * (noise - self.root @ inner)[..., 0]
        return torch.cat([self.mean[:random] + shift, self.mean[random:]])

    def _factor(self) -> Tensor:
        """The Cholesky factor of I + Aᵀ A, (V, R, R)."""
        rank = self.root.shape[2]
        identity = torch.eye(rank, device=self.root.device)
        # Of a diverged training it returns NaN, which the loop reports; `cholesky` would raise an error of its own.
        factor: Tensor = torch.linalg.cholesky_ex(identity + self.root.mT @ self.root).L
        return factor

    def _solved(self, right: Tensor) -> Tensor:
        """Return L⁻¹ `right`, (V, R, ...), of the Cholesky factor L."""
        solved: Tensor = torch.linalg.solve_triangular(self._factor(), right, upper=False)
        return solved


@dataclass
class LastLayerVariational(NetworkOnly):
    """A deterministic trunk and a Gaussian last layer."""

    model: SplitNetwork
    likelihood: Likelihood

    @property
    def head(self) -> VariationalLinear:
        """The last layer."""
        assert isinstance(self.model.head, VariationalLinear)
        return self.model.head

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: one pass of the trunk, S last layers."""
        self.model.eval()
        draws, features = rewound(generator), self.model.features(images)
        with torch.autocast(images.device.type, enabled=False):
            weights = torch.stack([self.head.draw(draws) for _ in range(samples)])
            outputs = features @ weights.mT + self.head.bias
            return torch.stack([self.likelihood.predictive(some) for some in outputs])


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> LastLayerVariational:
    """Put a Gaussian layer where the last linear one was, and return the posterior."""
    network = split_last_layer(model)
    assert isinstance(network.head, nn.Linear)
    generator = torch_generator("cpu", run.seed, "vbll", "root")
    rank = as_config(run, Config).rank
    network.head = VariationalLinear(network.head, random_outputs(likelihood), rank, generator)
    return LastLayerVariational(network, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> LastLayerVariational:
    """Train trunk and last layer together, and return the posterior."""
    posterior, method = build(model, run, likelihood), as_config(run, Config)
    prior = method.prior_variance or run.optimizer.prior_variance(len(batches.train))
    if math.isinf(prior):
        raise InputError(
            "optimizer.l2=0 is no prior of the last layer", hint="Set method.prior_variance, or optimizer.l2."
        )
    head = posterior.head
    with torch.no_grad():
        # S starts at the prior, or where a sum of D features of size 1 has the variance 1: a wider start drowns the labels.
        head.log_scale.fill_(0.5 * math.log(min(prior, 1 / head.log_scale.shape[1])))
    optimizer = make_optimizer(posterior.model, run.optimizer)
    widths = [head.log_scale, head.root]
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if all(p is not width for width in widths)]
    optimizer.add_param_group({"params": widths, "weight_decay": 0.0, "lr_factor": method.rate})
    objective = bound(posterior, batches, run, prior)
    return train(posterior, batches, run, checkpoint, objective=objective, optimizer=optimizer)


def bound(
    posterior: LastLayerVariational, batches: Batches, run: TrainingRun, prior_variance: float
) -> Objective:
    """Return the two terms of the loss: the bound of the expected cross-entropy and the divergence."""
    head, points = posterior.head, len(batches.train)

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        with precision(run, batches.device):
            features = posterior.model.features(images)
        losses = expected_loss(posterior.likelihood, head(features), head.variance(features), labels)
        return {
            "cross_entropy": mean_loss(losses, labels, run.optimizer.reweight, batch),
            "divergence": head.divergence(prior_variance) / points,
        }

    return objective
