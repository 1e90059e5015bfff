"""VOGN: variational online Gauss-Newton (Khan et al. 2018; Osawa et al. 2019), the predecessor of IVON.

**Idea.** The predecessor of IVON: a Gaussian over all weights, whose width follows the squared gradients of
single images. Each step draws the weights, takes the gradient of every image there, and averages their squares.

    q(θ) = N(m, 1 / (λ (h + δ))),   λ = N / temperature,   prior precision λ δ,   δ = 2 l2
    θ = m + ε / √(λ (h + δ)),  g_n = ∇ℓ_n(θ),  g = mean c_n g_n
    ḡ ← β₁ ḡ + (1 - β₁) g
    h ← β₂ h + (1 - β₂) mean c_n g_n²
    m ← m - α (h₀ + δ) (ḡ / (1 - β₁ᵗ) + δ m) / (h + δ)

c_n is 1, or the weight of the image's class where the likelihood is reweighted (`optimizer.reweight`): as in
Laplace's curvature, it counts once.

**Settings.** `std` of a weight at the start, which sets h₀; `beta2`; `temperature` below 1 for a cold
posterior; `samples`. β₁ is `optimizer.momentum`, and α = `lr` / (1 - β₁), so that a step is as long as SGD's in
the same run.

**Cost.** The gradient of every image, in float32, at most 1 GiB of them at once. Their mean is the gradient, so
that one pass gives both; with batch norm, whose statistics tie the images of a batch together, the gradient has
a second pass, and the squares are taken with the running statistics. Three numbers per weight. A prediction: S
passes.

**When it fails.** The mean of g_n² is the Hessian only where the labels are drawn from the model: images that
are fitted too well make q too wide, outliers too narrow. On linear regression with residuals smaller than the
noise that is wrong however long it trains (`tests/methods/test_known_posteriors.py` has its fixed point). h
needs 1 / (1 - β₂) steps to converge, as IVON's. With batch norm the first fifty steps take their squares with
statistics that have not converged yet. The last epoch is used.

**Source.** Khan et al. 2018, Fast and Scalable Bayesian Deep Learning by Weight-Perturbation in Adam; Osawa et
al. 2019, Practical Deep Learning with Bayesian Principles. Written from the papers.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, log_range
from retinabench.methods.posteriors import WeightPosterior
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective, class_weights, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import precision
from retinabench.methods.variational.natural_gradients import (
    NaturalGradientConfig,
    NaturalGradientOptimizer,
    build,
    make_natural_optimizer,
    train_gaussian,
)

__all__ = ["FIDELITY", "Config", "build", "fit"]

GRADIENT_VALUES = 2**28  # of single gradients in memory together: 1 GiB of float32


class Config(NaturalGradientConfig):
    """The options of `NaturalGradientConfig`, and no other."""

    title = "VOGN"
    approximates = "an independent Gaussian, as wide as squared gradients say"

    name: Literal["vogn"] = "vogn"


class Vogn(NaturalGradientOptimizer):
    """VOGN's step; before it, `add` takes the squared gradients of every part of the batch."""

    def __init__(self, parameters: list[nn.Parameter], **options: float) -> None:
        super().__init__(parameters, **options)
        self._squares: dict[nn.Parameter, Tensor] = {}

    def add(self, parameter: nn.Parameter, squares: Tensor) -> None:
        """Add Σ c_n g_n² of a part of the batch, over the size of the whole batch."""
        self._squares[parameter] = self._squares.get(parameter, 0) + squares

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients and the squares."""
        super().zero_grad(set_to_none)
        self._squares.clear()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        """Take one step with the gradients and squares of the last loss."""
        group = self.param_groups[0]
        beta2 = group["beta2"]
        for p in group["params"]:
            if p.grad is not None:
                # Of a last small batch this process may have had no image.
                squares = distributed.total(self._squares.pop(p, torch.zeros_like(p)))
                self.move(p, beta2 * self.state[p]["hessian"] + (1 - beta2) * squares)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> WeightPosterior:
    """Train q and return it; the last epoch is used."""
    optimizer = make_natural_optimizer(Vogn, model, run, len(batches.train))
    objective = drawn_objective(model, optimizer, run, likelihood)
    return train_gaussian(
        model, batches, run, checkpoint, likelihood, objective=objective, optimizer=optimizer
    )


def drawn_objective(model: nn.Module, optimizer: Vogn, run: TrainingRun, likelihood: Likelihood) -> Objective:
    """Return the cross-entropy at weights drawn from q, and pass the squares of single gradients to the optimiser.

    The mean of the single gradients is the gradient: one pass gives both. Batch norm ties the images of a batch
    together, so that none has a gradient of its own: the squares are then taken with the running statistics, by which
    the network predicts, and the gradient in a second pass, with those of the batch.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    tied = any(isinstance(module, _BatchNorm) for module in model.modules())

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        generator = torch_generator(images.device, run.seed, "vogn", batch.step)
        weights = {
            name: p + optimizer.std(p) * torch.randn(p.shape, generator=generator, device=p.device)
            for name, p in named.items()
        }
        if tied:
            with precision(run, images.device):
                outputs = functional_call(model, weights, (images,))
            loss = cross_entropy(outputs, labels, likelihood, run.optimizer.reweight, batch)
        fixed = {name: w.detach() for name, w in weights.items()}
        reweighted = run.optimizer.reweight != "none"
        shares = (
            class_weights(labels, batch.positive_share)
            if reweighted
            else torch.ones(len(labels), device=labels.device)
        )
        squares, gradients, total = single_gradients(model, fixed, images, labels, shares, likelihood)
        for name, p in named.items():
            optimizer.add(p, squares[name] / batch.size)
        if not tied:
            # A value whose derivative by the mean is known already.
            slopes = [((p - p.detach()) * gradients[name]).sum() for name, p in named.items()]
            loss = (total + torch.stack(slopes).sum()) / len(labels)
        return {"cross_entropy": loss}

    return objective


def single_gradients(
    model: nn.Module,
    weights: dict[str, Tensor],
    images: Tensor,
    labels: Tensor,
    shares: Tensor,
    likelihood: Likelihood,
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Return Σ_n c_n g_n² and Σ_n c_n g_n by name, and Σ_n c_n ℓ_n; ℓ_n = -log p(y_n | x_n), g_n = ∂ℓ_n / ∂θ.

    Taken in float32, by the network in the mode in which it predicts.

    Shapes: `images` (B, ...), `labels` (B,), `shares` (B,).
    """

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        outputs = functional_call(model, weights, (image[None],))
        return likelihood.negative_log_likelihood(outputs, label[None]).squeeze()

    squares = {name: torch.zeros_like(w) for name, w in weights.items()}
    gradients = {name: torch.zeros_like(w) for name, w in weights.items()}
    total = torch.zeros((), device=images.device)
    single = vmap(grad_and_value(loss), in_dims=(None, 0, 0))
    training = model.training
    model.eval()
    together = max(1, GRADIENT_VALUES // sum(w.numel() for w in weights.values()))
    for start in range(0, len(images), together):
        some = slice(start, start + together)
        found, losses = single(weights, images[some], labels[some])
        for name, g in found.items():
            weighted = torch.einsum("n,n...->n...", shares[some], g)
            gradients[name] += weighted.sum(dim=0)
            squares[name] += (weighted * g).sum(dim=0)
        total = total + shares[some] @ losses
    model.train(training)
    return squares, gradients, total


FIDELITY = (
    FidelitySettings(
        name="vogn",
        title="VOGN",
        method={"name": "vogn", "samples": 100, "beta2": 0.9995},
        optimizer={"momentum": 0.9, "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.016}, "method": {"std": 0.011}},
        gaussian={"optimizer": {"lr": 0.00079}, "method": {"std": 0.025}},
        search={
            "categorical": {"method.std": log_range(0.01, 0.1), "optimizer.lr": log_range(0.002, 0.1)},
            "gaussian": {"method.std": log_range(0.01, 0.1), "optimizer.lr": log_range(0.0005, 0.02)},
        },
    ),
)
