"""The step of stochastic-gradient Langevin and Hamiltonian samplers, as an optimiser of PyTorch.

Target: π(w) ∝ exp(-U(w) / T), U = N · loss the negative log-posterior of all N images. With h = lr / N the step is

    v ← b v - √h ∇U + √(2 (1 - b) T) C^½ ξ,    w ← w + √h C⁻¹ v,    ξ ~ N(0, I)

b = 0 and C = I give w ← w - h ∇U + √(2 h T) ξ, Langevin's; in terms of the mean loss that is a step of SGD of the
learning rate `lr` and noise of variance 2 lr T / N. b > 0 is SGD with momentum b and the same noise (Chen et al. 2014, in
the form of Wenzel et al. 2020). C is the identity, or ε + √V with V the RMSprop average of (∇U / N)² (Li et al. 2016).

A C that depends on w would ask for a drift Γ = ∇ · C⁻¹, which published code leaves out, and so samples another density. Here C
learns for `adapt` steps and is then frozen: Γ = 0, and the samples after that are those of the target.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from retinabench.core.random_streams import torch_generator
from retinabench.methods.training.loop import ParameterGroup

DECAY, EPSILON = 0.99, 1e-7  # of RMSprop, as in Izmailov et al. 2021


class Langevin(torch.optim.Optimizer):
    """The step above on parameter groups, each with its `weight_decay` as the prior's part of the gradient.

    images: N. adapt: steps during which the preconditioner learns, 0 for C = I. The noise of a step depends on `seed` and
    its number alone, so that a resumed training repeats it.
    """

    def __init__(
        self, groups: list[ParameterGroup], *, lr: float, momentum: float, images: int, temperature: float,
        adapt: int, seed: int,
    ) -> None:  # fmt: skip
        own = {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "images": images, "temperature": temperature,
               "adapt": adapt, "seed": seed, "steps": 0}  # fmt: skip
        super().__init__(groups, own)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["velocity"] = torch.zeros_like(p)
                if adapt:
                    self.state[p]["squares"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        """Take one step with the gradients of the mean loss."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        number, seed = self.param_groups[0]["steps"], self.param_groups[0]["seed"]
        # Drawn at once: a network has many small parameters.
        generator = torch_generator(parameters[0].device, seed, "langevin", number)
        sizes = [p.numel() for p in parameters]
        flat = torch.randn(sum(sizes), generator=generator, device=parameters[0].device)
        pieces = iter(torch.split(flat, sizes))
        for group in self.param_groups:
            noise = [next(pieces).view(p.shape) for p in group["params"]]
            self._move(group, noise)
            group["steps"] += 1

    def _move(self, group: ParameterGroup, noise: list[Tensor]) -> None:
        parameters, b = group["params"], group["momentum"]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        torch._foreach_add_(gradients, parameters, alpha=group["weight_decay"])
        scales = self._preconditioner(group, gradients)
        root = math.sqrt(group["lr"] / group["images"])
        velocities = [self.state[p]["velocity"] for p in parameters]
        torch._foreach_mul_(velocities, b)
        torch._foreach_add_(velocities, gradients, alpha=-root * group["images"])
        if scales:
            torch._foreach_mul_(noise, torch._foreach_sqrt(scales))
        torch._foreach_add_(velocities, noise, alpha=math.sqrt(2 * (1 - b) * group["temperature"]))
        moves = torch._foreach_div(velocities, scales) if scales else velocities
        torch._foreach_add_(parameters, moves, alpha=root)

    def _preconditioner(self, group: ParameterGroup, gradients: list[Tensor]) -> list[Tensor]:
        """Return the diagonal of C by parameter, learning from the gradients as long as it may; [] for the identity."""
        if not group["adapt"]:
            return []
        squares = [self.state[p]["squares"] for p in group["params"]]
        if group["steps"] < group["adapt"]:
            torch._foreach_mul_(squares, DECAY)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - DECAY)
        # Divided by the weight that the average has gathered, so that the first steps are no longer than the others.
        gathered = 1 - DECAY ** min(group["steps"] + 1, group["adapt"])
        scales = torch._foreach_div(squares, gathered)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, EPSILON)
        return scales  # type: ignore[return-value]
