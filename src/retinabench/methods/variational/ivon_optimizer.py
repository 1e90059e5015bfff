"""IVON's step (Shen et al. 2024, algorithm 1), as an optimiser of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from retinabench.methods.training import distributed


def next_hessian(h: Tensor, estimate: Tensor, beta2: float, delta: float) -> Tensor:
    """β₂ h + (1 - β₂) f + ½ (1 - β₂)² (h - f)² / (h + δ): a moving average whose last term keeps h + δ positive."""
    rest = 1 - beta2
    return beta2 * h + rest * estimate + 0.5 * rest**2 * (h - estimate).square() / (h + delta)


def next_mean(
    mean: Tensor, momentum: Tensor, h: Tensor, rate: float, delta: float, debias: float, clip: float
) -> Tensor:
    """Mean - rate · (ḡ / debias + δ m) / (h + δ), the fraction clipped to [-clip, clip] where clip > 0."""
    direction = (momentum / debias + delta * mean) / (h + delta)
    return mean - rate * (direction.clamp(-clip, clip) if clip else direction)


class Ivon(torch.optim.Optimizer):
    """IVON as an optimiser: `perturbed` gives the weights at which the loss is taken, `step` moves m and h.

    The gradient of a loss averaged over several perturbed weights is handled as well: each draw is m + t ⊙ noise at
    t = 1, and the gradient with respect to t is Σ noise ⊙ g, the sum that Price's theorem asks for. Several processes
    draw the same noise, so that their sums add up to that of the whole batch.
    """

    def __init__(
        self, parameters: list[nn.Parameter], *, lr: float, lr_factor: float, ess: float, delta: float,
        hessian: float, beta1: float, beta2: float, clip: float = 0.0,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "lr_factor": lr_factor, "ess": ess, "delta": delta, "hessian": hessian,
            "beta1": beta1, "beta2": beta2, "clip": clip,
        }  # fmt: skip
        super().__init__(parameters, defaults)
        for parameter in parameters:
            start = {"momentum": torch.zeros_like(parameter), "hessian": torch.full_like(parameter, hessian)}
            self.state[parameter] = {**start, "step": 0}
        self._factors: dict[nn.Parameter, Tensor] = {}

    def deviation(self, parameter: nn.Parameter) -> Tensor:
        """Return the standard deviation 1 / √(λ (h + δ)) of one parameter, in its shape."""
        group = self.param_groups[0]
        precision: Tensor = group["ess"] * (self.state[parameter]["hessian"] + group["delta"])
        return precision.rsqrt()

    def perturbed(self, named: dict[str, nn.Parameter], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw weights of q by name; the loss's gradient through them reaches the mean."""
        drawn = {}
        for name, p in named.items():
            noise = torch.randn(p.shape, generator=generator, device=p.device) * self.deviation(p)
            drawn[name] = p + self._factor(p) * noise
        return drawn

    def _factor(self, parameter: nn.Parameter) -> Tensor:
        return self._factors.setdefault(parameter, torch.ones_like(parameter, requires_grad=True))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        """Take one step with the gradients of the last loss."""
        group = self.param_groups[0]
        beta1, beta2, delta = group["beta1"], group["beta2"], group["delta"]
        rate = group["lr"] * (group["hessian"] + delta)
        if distributed.current().count > 1:  # of a last small batch this process may have had no picture
            distributed.sum_gradients([self._factor(p) for p in group["params"]])
        for p in group["params"]:
            factor, state = self._factors.pop(p, None), self.state[p]
            if p.grad is None or factor is None or factor.grad is None:
                continue
            h = state["hessian"]
            estimate = group["ess"] * (h + delta) * factor.grad
            state["step"] += 1
            state["momentum"] = beta1 * state["momentum"] + (1 - beta1) * p.grad
            state["hessian"] = next_hessian(h, estimate, beta2, delta)
            debias = 1 - beta1 ** state["step"]
            p.copy_(next_mean(p, state["momentum"], state["hessian"], rate, delta, debias, group["clip"]))
