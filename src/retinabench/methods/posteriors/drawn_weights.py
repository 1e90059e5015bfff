"""Posteriors that draw all weights of a network, and the one of independent Gaussians."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.methods.posteriors.draw_cache import DrawCache, fits_cache
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import State, restore_with, state_with


@dataclass
class DrawnWeights(ABC):
    """A distribution over all weights of a network, with tensors beside it: a prediction is one pass per draw."""

    model: nn.Module
    likelihood: Likelihood
    cache: DrawCache[dict[str, Tensor]] = field(default_factory=DrawCache, repr=False, kw_only=True)

    @property
    @abstractmethod
    def beside(self) -> State:
        """The tensors beside the network, by name."""

    @abstractmethod
    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield S draws of all weights by name, from the beginning of the generator's stream."""

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: S draws of all weights, one pass each."""
        self.model.eval()
        sources = [*self.model.parameters(), *self.beside.values()]
        drawn = self.cache.samples(
            generator, samples, sources, partial(self.draw, samples), cache=fits_cache(samples, self.model)
        )
        passes = [functional_call(self.model, weights, (images,)) for weights in drawn]
        return torch.stack([self.likelihood.predictive(outputs) for outputs in passes])

    def state(self) -> State:
        """Return the tensors of the network and those beside it."""
        return state_with(self.model, self.beside)

    def restore(self, state: State) -> None:
        """Take over saved tensors; ValueError where those beside the network have other names or axes."""
        found, own = restore_with(self.model, state), self.beside
        if set(found) != set(own):
            raise ValueError(f"beside the network are {sorted(found)!s:.60}, not {sorted(own)}")
        for name, tensor in found.items():
            if tensor.ndim != own[name].ndim or tensor.shape[-1:] != own[name].shape[-1:]:
                raise ValueError(f"'{name}' has shape {tuple(tensor.shape)}")
        for name, tensor in found.items():
            setattr(self, name, tensor)


@dataclass
class WeightPosterior(DrawnWeights):
    """Independent Gaussians over the weights: means in the network, stds beside it, by name."""

    stds: dict[str, Tensor]

    @property
    def beside(self) -> State:
        """The stds."""
        return self.stds

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield draws, each parameter in turn."""
        for _ in range(samples):
            yield {
                name: p + self.stds[name] * torch.randn(p.shape, generator=generator, device=p.device)
                for name, p in self.model.named_parameters()
            }

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.stds = restore_with(self.model, state)


def point(model: nn.Module, likelihood: Likelihood) -> WeightPosterior:
    """Return the network with no width around it."""
    return WeightPosterior(
        model, likelihood, {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    )
