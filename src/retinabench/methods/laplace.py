"""Laplace's approximation (MacKay 1992; Daxberger et al. 2021): a Gaussian around MAP, as wide as the likelihood allows.

**Idea.** Train MAP. Then put a Gaussian around it whose precision is the curvature of the likelihood plus that
of the prior.

    q(θ) = N(θ*, (H + δ I)⁻¹),   H = Σ_n w_n J_nᵀ Λ_n J_n,   Λ = p (1 - p), or diag(p) - p pᵀ

Of a regression Λ is the Fisher information of mean and raw standard deviation r, diag(1, 2 (dσ/dr)²) / σ².

H is the generalised Gauss-Newton matrix, which for these likelihoods is the Fisher information. Samples are
those of the network linearised at θ*, f + J (θ - θ*): the model whose exact curvature H is.

**Settings.** `weights`: `last_layer` (full covariance over the D + 1 weights of each output) or `diagonal` (all
weights, the diagonal of H alone). `prior_precision` δ: a number, `evidence` (MacKay's γ = δ |θ*|², the one
maximum of the marginal likelihood), or `validation` (least NLL on the validation split). `samples`.

Reweighted training maximises a reweighted likelihood; H is then that of the same likelihood, with the classes'
shares in the whole training set.

**Cost.** MAP's training; then one pass over the training images (`last_layer`), or one with a backward pass per image and output
(`diagonal`); `validation` adds about a dozen predictions of the validation split. Predictions: one pass in all, or four passes
per sample (`diagonal`). Memory: (C (D + 1))² numbers, or P.

**When it fails.** `last_layer` has the uncertainty of the last layer alone. With many more features than images most directions
are as wide as the prior, and the evidence makes them wider still: `validation` then has the lower NLL. `diagonal` drops the
correlations that determine most directions of a network with more weights than images: its variances are far too large, and the
evidence chooses too small a δ: hence `validation` by default there. The evidence counts every image as an independent one; both
eyes of a patient are not.

**Source.** MacKay 1992; Daxberger et al. 2021, Laplace Redux; Immer et al. 2021 (linearised predictions).

The generalised Gauss-Newton matrix is H = Σ_n w_n J_nᵀ Λ_n J_n, J_n the Jacobian of the outputs of image n. Of logits it is the
Hessian of the cross-entropy, and for weights that enter them linearly H is the Hessian itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor, nn
from torch.func import functional_call, jacrev, jvp, vmap

from retinabench.core.errors import InputError
from retinabench.data.loader import Batches
from retinabench.methods.base import ADAM, as_config, fidelity_entry
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import WeightPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import class_weights
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.posterior import State, precision, restore_with, rewound, state_with
from retinabench.methods.training.prediction import validation_scores
from retinabench.models.last_layer import SplitNetwork, split_last_layer, with_bias

Widen = Callable[[float], None]
SEARCHED = (1e-2, 1e8)
EXAMPLES_AT_ONCE = 16


@dataclass
class LastLayerPosterior:
    """A trunk, the last layer's MAP weights, and a factor F (P, P) of their covariance F Fᵀ, P = C (D + 1)."""

    model: SplitNetwork
    likelihood: Likelihood
    factor: Tensor

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: one pass of the trunk, S last layers."""
        self.model.eval()
        draws, features = rewound(generator), self.model.features(images)
        with torch.autocast(images.device.type, enabled=False):
            logits, probs = self.model.head(features), []
            for _ in range(samples):
                noise = torch.randn(len(self.factor), generator=draws, device=images.device)
                shift = (self.factor @ noise).view(logits.shape[1], -1)
                probs.append(self.likelihood.predictive(logits + with_bias(features) @ shift.T))
        return torch.stack(probs)

    def state(self) -> State:
        return state_with(self.model, {"factor": self.factor})

    def restore(self, state: State) -> None:
        self.factor = restore_with(self.model, state)["factor"]


class DiagonalPosterior(WeightPosterior):
    """Independent Gaussians over all weights, and the network linearised at their means."""

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: S draws of the linearised network, each a directional derivative."""
        self.model.eval()
        draws, probs = rewound(generator), []
        center = {name: p.detach() for name, p in self.model.named_parameters()}

        def network(weights: dict[str, Tensor]) -> Tensor:
            logits: Tensor = functional_call(self.model, weights, (images,))
            return logits

        for _ in range(samples):
            noise = {name: torch.randn(p.shape, generator=draws, device=p.device) for name, p in center.items()}
            shift = {name: self.stds[name] * own for name, own in noise.items()}
            with torch.autocast(images.device.type, enabled=False), warnings.catch_warnings():
                # PyTorch's forward mode calls a function that PyTorch has deprecated.
                warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)
                logits, change = jvp(network, (center,), (shift,))  # type: ignore[misc]  # no auxiliary output
            probs.append(self.likelihood.predictive(logits + change))
        return torch.stack(probs)


class Config(MethodConfig):
    """weights, prior_precision: see the card. samples: by default 100 of the last layer, one pass in all, and 5 of all weights.

    Five draws of logits with stds of several units leave a noise in their mean that reorders the images.
    """

    title = "Laplace"

    name: Literal["laplace"] = "laplace"
    weights: Literal["last_layer", "diagonal"] = "last_layer"
    prior_precision: Literal["evidence", "validation"] | float | None = None
    samples: int = Field(5, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _default_samples_of_last_layer(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("weights", "last_layer") == "last_layer":
            return {"samples": 100, **given}
        return given

    @field_validator("prior_precision")
    @classmethod
    def _positive(cls, value: str | float | None) -> str | float | None:
        if isinstance(value, float) and value <= 0:
            raise ValueError("a precision is above 0")
        return value

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return those of MAP, and one pass for the curvature."""
        return optimizer.epochs + 1.0

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior: the mode has the prior of the L2 term, the width its own."""
        variance, precision = optimizer.prior_variance(points), self.prior_precision
        if optimizer.l2_on != "everything":
            return optimizer.target(points, "")
        if not isinstance(precision, float):
            return no_target("the prior of its width is chosen after the training")
        if abs(precision * variance - 1) > 1e-6:
            return no_target(f"two priors: variance {variance:.3g} at the mode, {1 / precision:.3g} around it")
        random = "the last layer's weights" if self.weights == "last_layer" else "all weights"
        return TargetPosterior(1.0, variance, f"a Gaussian at the mode, {random}, by the curvature")


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> LastLayerPosterior | DiagonalPosterior:
    if as_config(run, Config).weights == "diagonal":
        return DiagonalPosterior.build(model, run, likelihood)
    network = split_last_layer(model)
    weights = _head_weights(network)
    return LastLayerPosterior(network, likelihood, weights.new_zeros(weights.numel(), weights.numel()))


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> LastLayerPosterior | DiagonalPosterior:
    """Train MAP, by which the checkpoint validates, measure the curvature in one pass, choose δ and return the posterior."""
    posterior = build(model, run, likelihood)
    train(PointPosterior(posterior.model, likelihood), batches, run, checkpoint)
    posterior.model.eval()
    measure = measure_last_layer if isinstance(posterior, LastLayerPosterior) else measure_diagonal
    eigenvalues, squared_norm, widen = measure(posterior, batches, run)  # type: ignore[arg-type]
    method = as_config(run, Config)
    chosen = method.prior_precision or ("evidence" if method.weights == "last_layer" else "validation")
    if isinstance(chosen, float):
        widen(chosen)
    elif chosen == "evidence":
        widen(evidence_precision(eigenvalues, squared_norm))
    else:
        widen(_validation_precision(posterior, widen, batches, run))
    return posterior


def measure_last_layer(
    posterior: LastLayerPosterior, batches: Batches, run: TrainingRun
) -> tuple[NDArray[np.float64], float, Widen]:
    """Return the eigenvalues λ (P,) of H = V λ Vᵀ, |θ*|², and what sets the factor to V (λ + δ)^-½."""
    eigenvalues, vectors = torch.linalg.eigh(last_layer_curvature(posterior, batches, run))

    def widen(delta: float) -> None:
        posterior.factor = (vectors * (eigenvalues.clamp(min=0) + delta).rsqrt()).float()

    return eigenvalues.cpu().numpy(), float(_head_weights(posterior.model).double().square().sum()), widen


@torch.no_grad()
def last_layer_curvature(posterior: LastLayerPosterior, batches: Batches, run: TrainingRun) -> Tensor:
    """Return H (P, P), the Gauss-Newton matrix of the last layer over the training rows, in float64."""
    network = posterior.model
    curvature = torch.zeros(posterior.factor.shape, dtype=torch.float64, device=batches.device)
    for images, weights in _weighted(batches, run):
        with precision(run, batches.device):
            features = network.features(images)
        curvature += linear_curvature(with_bias(features), network.head(features), weights, posterior.likelihood)
    return curvature


def measure_diagonal(
    posterior: DiagonalPosterior, batches: Batches, run: TrainingRun
) -> tuple[NDArray[np.float64], float, Widen]:
    """Return the diagonal h (P,) of H, |θ*|², and what sets the stds to (h + δ)^-½."""
    model = posterior.model
    curvature = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for images, weights in _weighted(batches, run):
        for name, part in diagonal_curvature(model, images, weights, posterior.likelihood).items():
            curvature[name] += part
    everything = torch.cat([h.flatten() for h in curvature.values()]).double().cpu().numpy()
    squared_norm = sum(float(p.detach().double().square().sum()) for p in model.parameters())

    def widen(delta: float) -> None:
        posterior.stds = {name: (h + delta).rsqrt() for name, h in curvature.items()}

    return everything, squared_norm, widen


def _validation_precision(
    posterior: LastLayerPosterior | DiagonalPosterior, widen: Widen, batches: Batches, run: TrainingRun
) -> float:
    """Return the δ in `SEARCHED` with the least NLL on the validation split, by Brent's method with fixed draws."""
    if not len(batches.validation):
        hint = "Set method.prior_precision to a number, or to evidence."
        raise InputError("no validation split is held out that could choose the prior precision", hint=hint)

    def loss(log_precision: float) -> float:
        widen(math.exp(log_precision))
        return validation_scores(posterior, batches, run, 0, run.method.samples)["nll"]

    low, high = (math.log(end) for end in SEARCHED)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 0.05})
    return math.exp(found.x)


def _weighted(batches: Batches, run: TrainingRun) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the training images in batches, each with the weights (B,) of its images in the likelihood."""
    start, weights = 0, torch.ones(len(batches.train), device=batches.device)
    if run.optimizer.reweight == "minibatch":
        labels = batches.targets(batches.train)
        weights = class_weights(labels, labels.mean())
    for images, _ in batches.rows(batches.train):
        yield images, weights[start : start + len(images)]
        start += len(images)


def _head_weights(network: SplitNetwork) -> Tensor:
    """Weights and bias of the last layer, (C, D + 1)."""
    head = network.head
    assert isinstance(head, nn.Linear)
    bias = head.bias if head.bias is not None else head.weight.new_zeros(head.out_features)
    return torch.cat([head.weight, bias[:, None]], dim=1).detach()


def linear_curvature(features: Tensor, logits: Tensor, weights: Tensor, likelihood: Likelihood) -> Tensor:
    """Return H of the last layer's weights, in float64.

    Entry c D + d belongs to weight d of output c. Shapes: `features` (B, D), `logits` (B, C), `weights` (B,).
    """
    phi = features.double()
    hessian = likelihood.information(logits.double()) * weights.double()[:, None, None]
    size = logits.shape[1] * features.shape[1]
    return torch.einsum("bij,bd,be->idje", hessian, phi, phi).reshape(size, size)


def diagonal_curvature(model: nn.Module, images: Tensor, weights: Tensor, likelihood: Likelihood) -> dict[str, Tensor]:
    """Return the diagonal of H over all parameters of `model`, by name.

    Λ = Rᵀ R, so that the diagonal is the sum of squares of the Jacobian of R f, R held fixed: one row per output.
    Shapes: `images` (B, ...), `weights` (B,).
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def rooted(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, parameters, (image[None],))[0].float()
        return likelihood.root_times(logits.detach(), logits)

    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    jacobian = vmap(jacrev(rooted), in_dims=(None, 0))
    for start in range(0, len(images), EXAMPLES_AT_ONCE):
        some = slice(start, start + EXAMPLES_AT_ONCE)
        for name, rows in jacobian(parameters, images[some]).items():
            total[name] += torch.einsum("bc...,b->...", rows.square(), weights[some])
    return total


def evidence_precision(eigenvalues: NDArray[np.float64], squared_norm: float) -> float:
    """Return the prior precision δ that maximises Laplace's log evidence (MacKay 1992).

    log p(D) ≈ log p(D | θ*) - ½ δ |θ*|² + ½ Σ_j (log δ - log(λ_j + δ)), with λ_j the eigenvalues (P,) of H. Its
    derivative in log δ is ½ (γ - δ |θ*|²), γ = Σ λ_j / (λ_j + δ) the number of well-determined weights: it falls, so
    that its one root is the maximum.
    """
    eigenvalues = np.clip(eigenvalues, 0, None)

    def slope(log_precision: float) -> float:
        precision = math.exp(log_precision)
        return float((eigenvalues / (eigenvalues + precision)).sum() - precision * squared_norm)

    low, high = -30.0, 30.0
    if slope(low) <= 0:  # nothing is determined by the data
        return math.exp(low)
    return math.exp(high) if slope(high) >= 0 else math.exp(brentq(slope, low, high, xtol=1e-10))


FIDELITY = tuple(
    fidelity_entry(
        name,
        title,
        {"weights": weights, "samples": 100, "prior_precision": "prior_precision"},
        ADAM,
        tuned={"optimizer.lr": (rate, 0.0085)},
    )
    for name, title, weights, rate in (
        ("laplace", "last-layer Laplace", "last_layer", {100: 0.0068, 1000: 0.00068, "large": 0.0068}),
        ("laplace-diagonal", "diagonal Laplace", "diagonal", {100: 0.068, 1000: 0.22, "large": 0.0068}),
    )
)
