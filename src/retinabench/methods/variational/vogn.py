"""VOGN: variational online Gauss-Newton (Khan et al. 2018; Osawa et al. 2019): IVON's elder.

q(θ) = N(m, 1 / (λ (h + δ))), as in `ivon.py`, but h is a moving average of the squared gradients of single examples,
mean_n c_n g_n² at weights drawn from q, c_n their weights in the likelihood. It is always positive, and the Hessian
only where the model is true (the empirical Fisher information). The step is m ← m - α (ḡ + δ m) / (h + δ).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range, precision
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import Objective, last_epoch_answers, train
from retinabench.methods.training.losses import BatchInfo, class_weights, cross_entropy
from retinabench.methods.variational.diagonal_gaussian import WeightPosterior, point
from retinabench.methods.variational.ivon import initial_hessian
from retinabench.methods.variational.ivon_optimizer import next_mean

GRADIENT_VALUES = 2**28  # of single gradients in memory together: 1 GiB of float32


class Config(MethodConfig):
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

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        variance = self.temperature * optimizer.prior_variance(points)  # δ acts on every parameter
        return TargetPosterior(
            self.temperature, variance, "an independent Gaussian, as wide as squared gradients say"
        )


class Vogn(torch.optim.Optimizer):
    """VOGN's step: before it, every part of the batch has handed in its share of the squared gradients (`add`)."""

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
        self._squares: dict[nn.Parameter, Tensor] = {}

    def deviation(self, parameter: nn.Parameter) -> Tensor:
        """Return the standard deviation 1 / √(λ (h + δ)) of one parameter, in its shape."""
        group = self.param_groups[0]
        width: Tensor = (group["ess"] * (self.state[parameter]["hessian"] + group["delta"])).rsqrt()
        return width

    def add(self, parameter: nn.Parameter, squares: Tensor) -> None:
        """Take in Σ c_n g_n² of a part of the batch, over the size of the whole batch."""
        self._squares[parameter] = self._squares.get(parameter, 0) + squares

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # the loss is taken outside
        """Take one step with the gradients and squares of the last loss."""
        group = self.param_groups[0]
        beta1, beta2, delta = group["beta1"], group["beta2"], group["delta"]
        rate = group["lr"] * (group["hessian"] + delta)
        for p in group["params"]:
            if p.grad is None:
                continue
            # Of a last small batch this process may have had no picture.
            squares = distributed.total(self._squares.pop(p, torch.zeros_like(p)))
            state = self.state[p]
            state["step"] += 1
            state["momentum"] = beta1 * state["momentum"] + (1 - beta1) * p.grad
            state["hessian"] = beta2 * state["hessian"] + (1 - beta2) * squares
            debias = 1 - beta1 ** state["step"]
            p.copy_(next_mean(p, state["momentum"], state["hessian"], rate, delta, debias, clip=0.0))


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> WeightPosterior:
    """Return the network with q as a point."""
    return point(model, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> WeightPosterior:
    """Train q; the last epoch answers, since h has to arrive first. The checkpoint's validation is the mean's."""
    options, settings = as_config(run, Config), run.optimizer
    ess, delta = len(batches.train) / options.temperature, 2 * settings.l2
    optimizer = Vogn(
        [p for p in model.parameters() if p.requires_grad],
        lr=settings.lr,
        lr_factor=1 / (1 - settings.momentum),
        ess=ess,
        delta=delta,
        hessian=initial_hessian(options.deviation, ess, delta),
        beta1=settings.momentum,
        beta2=options.beta2,
    )
    trained = train(
        PointPosterior(model, likelihood),
        batches,
        last_epoch_answers(run),
        checkpoint,
        objective=drawn_objective(model, optimizer, run, likelihood),
        optimizer=optimizer,
    )
    posterior = build(trained.model, run, likelihood)
    for name, p in trained.model.named_parameters():
        if p.requires_grad:
            posterior.deviations[name] = optimizer.deviation(p).detach()
    return posterior


def drawn_objective(model: nn.Module, optimizer: Vogn, run: TrainingRun, likelihood: Likelihood) -> Objective:
    """Return the cross-entropy at weights drawn from q, which hands the squares of single gradients to the optimiser.

    The mean of the single gradients is the gradient: one pass gives both. Batch norm ties the images of a batch
    together, so that none has a gradient of its own: the squares are then taken with the running statistics, by which
    the network predicts, and the gradient in a second pass, with those of the batch.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    tied = any(isinstance(module, _BatchNorm) for module in model.modules())

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        generator = torch_generator(images.device, run.seed, "vogn", batch.step)
        weights = {
            name: p + optimizer.deviation(p) * torch.randn(p.shape, generator=generator, device=p.device)
            for name, p in named.items()
        }
        if tied:
            with precision(run, images.device):
                outputs = functional_call(model, weights, (images,))
            loss = cross_entropy(outputs, labels, likelihood, run.optimizer.reweight, batch)
        fixed = {name: w.detach() for name, w in weights.items()}
        reweighted = run.optimizer.reweight == "minibatch"
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

    images (B, ...), labels (B,). Taken in float32, by the network in the mode in which it predicts.
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
        categorical={"optimizer": {"lr": 0.016}, "method": {"deviation": 0.011}},
        gaussian={"optimizer": {"lr": 0.00079}, "method": {"deviation": 0.025}},
        search={
            "categorical": {"method.deviation": log_range(0.01, 0.1), "optimizer.lr": log_range(0.002, 0.1)},
            "gaussian": {"method.deviation": log_range(0.01, 0.1), "optimizer.lr": log_range(0.0005, 0.02)},
        },
    ),
)
