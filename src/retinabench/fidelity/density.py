"""The density of a target over flat weights: what the reference sampler follows, and its predictions.

Letters: K chains, P weights, N points, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.fidelity.data import Data, labels, standardised
from retinabench.fidelity.networks import build_network
from retinabench.fidelity.targets import Target
from retinabench.methods.likelihood import negative_log_likelihood, predictive, regression

CHUNK = 4096  # points in one pass


@dataclass(eq=False)
class Density:
    """log p(y | x, w) of a target's training points, for flat weights in the order of the network's parameters.

    Calling it is the `LogLikelihood` of `methods/hmc.py`: (K, P) -> values (K,), gradients (K, P).
    """

    target: Target
    train: tuple[Tensor, Tensor]
    test: Tensor
    network: nn.Module = field(repr=False)

    @classmethod
    def of(
        cls, target: Target, data: Data, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> Density:
        """Put a target's data and network on a device."""
        inputs, test = (torch.from_numpy(a).to(device) for a in standardised(data))
        truth = torch.from_numpy(labels(data)[0]).to(device)
        inputs, test, truth = (x.to(dtype) if x.is_floating_point() else x for x in (inputs, test, truth))
        return cls(target, (inputs, truth), test, build_network(target, 0).to(device, dtype))

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> log-likelihoods (K,) and their gradients (K, P), summed over all training points."""
        pairs = [self._one(w) for w in weights]
        values, gradients = zip(*pairs, strict=True)
        return torch.stack(values), torch.stack(gradients)

    def _one(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.detach().requires_grad_(True)
        inputs, truth = self.train
        value, gradient = (
            torch.zeros((), dtype=weights.dtype, device=weights.device),
            torch.zeros_like(weights),
        )
        with regression(self.target.likelihood == "gaussian"):
            for x, y in zip(torch.split(inputs, CHUNK), torch.split(truth, CHUNK), strict=True):
                part = -negative_log_likelihood(self.outputs(weights, x), y).sum()
                (slope,) = torch.autograd.grad(part, weights)
                value, gradient = value + part.detach(), gradient + slope
        return value, gradient

    def outputs(self, weights: Tensor, inputs: Tensor) -> Tensor:
        """(P,), (N, ...) -> (N, O)."""
        return functional_call(self.network, self.named(weights), (inputs,))  # type: ignore[no-any-return]

    @torch.no_grad()
    def predict(self, weights: Tensor, inputs: Tensor | None = None) -> Tensor:
        """(P,) -> class probabilities (N, C), or mean and deviation (N, 2), of the test points."""
        inputs = self.test if inputs is None else inputs
        with regression(self.target.likelihood == "gaussian"):
            return torch.cat([predictive(self.outputs(weights, x)) for x in torch.split(inputs, CHUNK)])

    def named(self, weights: Tensor) -> dict[str, Tensor]:
        """Cut (P,) into the network's parameters by name."""
        shapes = {name: p.shape for name, p in self.network.named_parameters()}
        pieces = torch.split(weights, [shape.numel() for shape in shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
