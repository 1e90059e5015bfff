"""The two posteriors of Laplace's approximation: Gaussian last-layer weights, and a network linear in all weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import State, restore_with, rewound, state_with
from retinabench.models.last_layer import SplitNetwork, with_bias


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
        """The network's tensors and the factor."""
        return state_with(self.model, {"factor": self.factor})

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.factor = restore_with(self.model, state)["factor"]


@dataclass
class DiagonalPosterior:
    """The MAP network and the standard deviation of every parameter, by name."""

    model: nn.Module
    likelihood: Likelihood
    stds: dict[str, Tensor]

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
            shift = {
                name: self.stds[name] * torch.randn(p.shape, generator=draws, device=p.device)
                for name, p in center.items()
            }
            logits, change = _derivative(network, center, shift)
            probs.append(self.likelihood.predictive(logits + change))
        return torch.stack(probs)

    def state(self) -> State:
        """The network's tensors and the stds."""
        return state_with(self.model, self.stds)

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.stds = restore_with(self.model, state)


def _derivative(
    network: Callable[[dict[str, Tensor]], Tensor], center: dict[str, Tensor], shift: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the logits at `center` and their derivative along `shift`, in float32."""
    device = next(iter(center.values())).device.type
    with torch.autocast(device, enabled=False), warnings.catch_warnings():
        # PyTorch's forward mode calls a function that PyTorch has deprecated.
        warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)
        logits, change = jvp(network, (center,), (shift,))  # type: ignore[misc]  # no auxiliary output
    return logits, change
