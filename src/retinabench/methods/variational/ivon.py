"""IVON: a Gaussian over all weights, learnt by natural gradients (Shen et al. 2024; Lin, Schmidt & Khan 2020).

**Idea.** Variational inference with a Gaussian over all weights at the cost of Adam. Each step draws the
weights, takes one gradient there, and estimates the curvature from the same gradient (Price's theorem).

    q(θ) = N(m, 1 / (λ (h + δ))),   λ = N / temperature,   prior precision λ δ,   δ = 2 l2
    θ = m + ε / √(λ (h + δ)),  g = ∇ℓ(θ),  f = λ (h + δ) (θ - m) g
    ḡ ← β₁ ḡ + (1 - β₁) g
    h ← β₂ h + (1 - β₂) f + ½ (1 - β₂)² (h - f)² / (h + δ)
    m ← m - α (h₀ + δ) (ḡ / (1 - β₁ᵗ) + δ m) / (h + δ)

**Settings.** `std` of a weight at the start, which sets h₀; `beta2`; `temperature` below 1 for a cold posterior
(the authors' settings for the 2021 competition have λ = 3 N to 12 N); `clip`; `train_samples`, `samples`. β₁ is
`optimizer.momentum`, and α = `lr` / (1 - β₁), so that a step is as long as SGD's in the same run.

Which posterior that is, in numbers: `run.target_posterior(points)`, and the table in `docs/beliefs.md`. A
mixture of K Gaussians, with which IVON won in 2021, is `ensemble` with K members `ivon`.

**Cost.** A step: one pass and one random number per weight. Three numbers per weight. A prediction: S passes,
the draws serving all its batches.

**When it fails.** h needs 1 / (1 - β₂) steps to converge: in a short training q stays as wide as `std` made it.
Too wide a start (0.01 and more with a thousand images) drowns the gradient. A mean-field Gaussian at
temperature 1 with few images has the right width for every weight by itself and underfits the network as a
whole. The last epoch is used: `optimizer.select` does not apply, and `metrics.jsonl` shows the scores of the
mean.

**Source.** Shen et al. 2024, Variational Learning is Effective for Large Deep Networks; Lin, Schmidt & Khan
2020. Written from the papers.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.posteriors import WeightPosterior
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective, cross_entropy
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


class Config(NaturalGradientConfig):
    """train_samples: weight draws per step. clip: largest |g / (h + δ)| taken in a step, 0 for none.

    The paper sets h0 instead of `std`, and its `beta2` of 0.99999 is for 100,000 steps and more. The other options are those
    of `NaturalGradientConfig`.
    """

    title = "IVON"
    approximates = "the best independent Gaussian"

    name: Literal["ivon"] = "ivon"
    train_samples: int = Field(1, ge=1)
    clip: float = Field(0.0, ge=0)


def next_hessian(h: Tensor, estimate: Tensor, beta2: float, delta: float) -> Tensor:
    """Return β₂ h + (1 - β₂) f + ½ (1 - β₂)² (h - f)² / (h + δ); the last term keeps h + δ positive."""
    rest = 1 - beta2
    return beta2 * h + rest * estimate + 0.5 * rest**2 * (h - estimate).square() / (h + delta)


class Ivon(NaturalGradientOptimizer):
    """IVON's step: `perturbed` returns the weights at which the loss is taken, `step` moves m and h.

    The gradient of a loss averaged over several perturbed weights is handled as well: each draw is m + t ⊙ noise at
    t = 1, and the gradient with respect to t is Σ noise ⊙ g, the sum that Price's theorem asks for. Several processes
    draw the same noise, so that their sums add up to that of the whole batch.

    References:
        Shen et al. (2024), "Variational learning is effective for large deep networks", algorithm 1.
    """

    def __init__(self, parameters: list[nn.Parameter], **options: float) -> None:
        super().__init__(parameters, **options)
        self._factors: dict[nn.Parameter, Tensor] = {}

    def perturbed(self, named: dict[str, nn.Parameter], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw weights of q by name; the loss's gradient through them reaches the mean."""
        drawn = {}
        for name, p in named.items():
            noise = torch.randn(p.shape, generator=generator, device=p.device) * self.std(p)
            drawn[name] = p + self._factor(p) * noise
        return drawn

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, and those of the factors."""
        super().zero_grad(set_to_none)
        self._factors.clear()

    def _factor(self, parameter: nn.Parameter) -> Tensor:
        return self._factors.setdefault(parameter, torch.ones_like(parameter, requires_grad=True))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        """Take one step with the gradients of the last loss."""
        group = self.param_groups[0]
        if distributed.current().count > 1:  # of a last small batch this process may have had no image
            distributed.sum_gradients([self._factor(p) for p in group["params"]])
        for p in group["params"]:
            factor = self._factors.pop(p, None)
            if p.grad is not None and factor is not None and factor.grad is not None:
                h = self.state[p]["hessian"]
                estimate = group["ess"] * (h + group["delta"]) * factor.grad
                self.move(p, next_hessian(h, estimate, group["beta2"], group["delta"]))


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> WeightPosterior:
    """Train q and return it; the last epoch is used."""
    clip = as_config(run, Config).clip
    optimizer = make_natural_optimizer(Ivon, model, run, len(batches.train), clip)
    objective = _perturbed_objective(model, optimizer, run, likelihood)
    return train_gaussian(
        model, batches, run, checkpoint, likelihood, objective=objective, optimizer=optimizer
    )


def _perturbed_objective(
    model: nn.Module, optimizer: Ivon, run: TrainingRun, likelihood: Likelihood
) -> Objective:
    """Return the cross-entropy at weights drawn from q; the noise of a step depends on seed and step alone."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    samples = as_config(run, Config).train_samples

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        generator = torch_generator(images.device, run.seed, "ivon", batch.step)
        losses = []
        for _ in range(samples):
            with precision(run, images.device):
                logits = functional_call(model, optimizer.perturbed(named, generator), (images,))
            losses.append(cross_entropy(logits, labels, likelihood, run.optimizer.reweight, batch))
        return {"cross_entropy": torch.stack(losses).mean()}

    return objective


FIDELITY = (
    FidelitySettings(
        name="ivon",
        title="IVON",
        method={"name": "ivon", "samples": 100, "train_samples": 1},
        optimizer={"momentum": 0.9, "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.03}, "method": {"std": 0.011, "beta2": 0.9995}},
        gaussian={"optimizer": {"lr": 0.0012}, "method": {"std": 0.021, "beta2": 0.998}},
        search={
            "categorical": {
                "method.std": log_range(0.01, 0.1),
                "method.beta2": {"choices": [0.998, 0.9995]},
                "optimizer.lr": log_range(0.002, 0.1),
            },
            "gaussian": {
                "method.std": log_range(0.01, 0.1),
                "method.beta2": {"choices": [0.998, 0.9995]},
                "optimizer.lr": log_range(0.0005, 0.02),
            },
        },
    ),
    FidelitySettings(
        name="ivon-mixture",
        title="mixture of IVON",
        method={
            "name": "ensemble",
            "members": 16,
            "member": {"name": "ivon", "samples": 64, "train_samples": 1, "beta2": 0.9995},
        },
        optimizer={"momentum": 0.9, "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.012}, "method": {"member": {"std": 0.017}}},
        gaussian={"optimizer": {"lr": 0.012}, "method": {"members": 6, "member": {"std": 0.012}}},
        search={
            "categorical": {
                "method.members": {"choices": [6, 10, 16]},
                "method.member.std": log_range(0.01, 0.1),
                "optimizer.lr": log_range(0.002, 0.1),
            },
            "gaussian": {
                "method.members": {"choices": [6, 10, 16]},
                "method.member.std": log_range(0.01, 0.1),
                "optimizer.lr": log_range(0.0005, 0.02),
            },
        },
    ),
)
