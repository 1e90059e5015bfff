"""VOGN: variational online Gauss-Newton (Khan et al. 2018; Osawa et al. 2019): IVON's elder.

q(θ) = N(m, 1 / (λ (h + δ))), as in `ivon.py`, but h is a moving average of the squared gradients of single examples,
mean_n g_n² at weights drawn from q: always positive, and the Hessian only where the model is true (the empirical Fisher
information). The step is m ← m - α (ḡ + δ m) / (h + δ).

Gradients of single examples are taken with the statistics that batch norm predicts with.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from retinabench import config
from retinabench.config import Run
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config, precision
from retinabench.methods.ivon import initial_hessian
from retinabench.methods.ivon_optimizer import next_mean
from retinabench.methods.journal import Journal
from retinabench.methods.likelihood import negative_log_likelihood
from retinabench.methods.losses import class_weights, cross_entropy
from retinabench.methods.map import PointPosterior
from retinabench.methods.training import Objective, last_epoch_answers, train
from retinabench.methods.weights import WeightPosterior, point
from retinabench.seeds import torch_generator

EXAMPLES_AT_ONCE = 64


class Config(config.Method):
    """samples: weight draws per prediction.

    deviation, beta2, temperature: as IVON's. The rest is the optimiser's: δ = 2 `l2` on every parameter, beta1 =
    `momentum`, and the learning rate is `lr` over 1 - `momentum`, as for IVON.
    """

    title = "VOGN"

    name: Literal["vogn"] = "vogn"
    samples: int = Field(5, ge=1)
    deviation: float = Field(0.005, gt=0)
    beta2: float = Field(0.9995, ge=0, lt=1)
    temperature: float = Field(1.0, gt=0)


class Vogn(torch.optim.Optimizer):
    """VOGN's step. Before it, `squares` holds the mean of the squared gradients of single examples, by parameter."""

    def __init__(
        self, parameters: list[nn.Parameter], *, lr: float, lr_factor: float, ess: float, delta: float,
        hessian: float, beta1: float, beta2: float,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "lr_factor": lr_factor, "ess": ess, "delta": delta, "hessian": hessian,
            "beta1": beta1, "beta2": beta2,
        }  # fmt: skip
        super().__init__(parameters, defaults)
        for parameter in parameters:
            start = {"momentum": torch.zeros_like(parameter), "hessian": torch.full_like(parameter, hessian)}
            self.state[parameter] = {**start, "step": 0}
        self.squares: dict[nn.Parameter, Tensor] = {}

    def deviation(self, parameter: nn.Parameter) -> Tensor:
        """Return the standard deviation 1 / √(λ (h + δ)) of one parameter, in its shape."""
        group = self.param_groups[0]
        width: Tensor = (group["ess"] * (self.state[parameter]["hessian"] + group["delta"])).rsqrt()
        return width

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # the loss is taken outside
        """Take one step with the gradients and squares of the last loss."""
        group = self.param_groups[0]
        beta1, beta2, delta = group["beta1"], group["beta2"], group["delta"]
        rate = group["lr"] * (group["hessian"] + delta)
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            state["step"] += 1
            state["momentum"] = beta1 * state["momentum"] + (1 - beta1) * p.grad
            state["hessian"] = beta2 * state["hessian"] + (1 - beta2) * self.squares[p]
            debias = 1 - beta1 ** state["step"]
            p.copy_(next_mean(p, state["momentum"], state["hessian"], rate, delta, debias, clip=0.0))
        self.squares = {}


def build(model: nn.Module, run: Run) -> WeightPosterior:
    """Return the network with q as a point."""
    return point(model)


def fit(model: nn.Module, batches: Batches, run: Run, journal: Journal) -> WeightPosterior:
    """Train q; the last epoch answers, since h has to arrive first. The journal's validation is the mean's."""
    options, settings = as_config(run, Config), run.optimizer
    ess, delta = len(batches.train) / options.temperature, 2 * settings.l2
    optimizer = Vogn(
        list(model.parameters()),
        lr=settings.lr,
        lr_factor=1 / (1 - settings.momentum),
        ess=ess,
        delta=delta,
        hessian=initial_hessian(options.deviation, ess, delta),
        beta1=settings.momentum,
        beta2=options.beta2,
    )
    train(
        PointPosterior(model),
        batches,
        last_epoch_answers(run),
        journal,
        objective=drawn_objective(model, optimizer, batches, run),
        optimizer=optimizer,
    )
    posterior = build(model, run)
    posterior.deviations = {name: optimizer.deviation(p).detach() for name, p in model.named_parameters()}
    return posterior


def drawn_objective(model: nn.Module, optimizer: Vogn, batches: Batches, run: Run) -> Objective:
    """Return the cross-entropy at weights drawn from q; it leaves the squares of single gradients with the optimiser."""

    def objective(images: Tensor, labels: Tensor, step: int) -> dict[str, Tensor]:
        generator = torch_generator(images.device, run.seed, "vogn", step)
        named = dict(model.named_parameters())
        weights = {
            name: p + optimizer.deviation(p) * torch.randn(p.shape, generator=generator, device=p.device)
            for name, p in named.items()
        }
        scale = (
            class_weights(labels)
            if run.optimizer.reweight == "minibatch"
            else torch.ones(len(images), device=images.device)
        )
        squares = mean_squares(model, {k: w.detach() for k, w in weights.items()}, images, labels, scale)
        for name, p in named.items():
            optimizer.squares[p] = squares[name]
        with precision(run, batches.device):
            outputs = functional_call(model, weights, (images,))
        return {"cross_entropy": cross_entropy(outputs, labels, run.optimizer.reweight)}

    return objective


def mean_squares(
    model: nn.Module, weights: dict[str, Tensor], images: Tensor, labels: Tensor, scale: Tensor
) -> dict[str, Tensor]:
    """Return mean_n (scale_n ∂ -log p(y_n | x_n) / ∂θ)² by name; images (B, ...), labels and scale (B,)."""

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor, scale: Tensor) -> Tensor:
        outputs = functional_call(model, weights, (image[None],)).float()
        return (scale * negative_log_likelihood(outputs, label[None])).squeeze()

    training = model.training
    model.eval()
    single = vmap(grad(loss), in_dims=(None, 0, 0, 0))
    total = {name: torch.zeros_like(w) for name, w in weights.items()}
    for start in range(0, len(images), EXAMPLES_AT_ONCE):
        some = slice(start, start + EXAMPLES_AT_ONCE)
        for name, gradient in single(weights, images[some], labels[some], scale[some]).items():
            total[name] += gradient.square().sum(dim=0)
    model.train(training)
    return {name: value / len(images) for name, value in total.items()}
