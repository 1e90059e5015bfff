"""Independent Gaussians over all weights of a network, shared by the methods that fit them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.methods.posteriors.draw_cache import DrawCache, fits_cache
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import State, restore_with, state_with


@dataclass
class WeightPosterior:
    """Independent Gaussians over the weights: means in the network, stds beside it, by name."""

    model: nn.Module
    likelihood: Likelihood
    stds: dict[str, Tensor]
    cache: DrawCache[dict[str, Tensor]] = field(default_factory=DrawCache, repr=False)

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: S draws of all weights, one pass each.

        Args:
            images: (B, 3, H, W).
            samples: Number S of samples.
            generator: Its seed determines the draws; its position does not change.
        """
        self.model.eval()

        def draw(start: torch.Generator) -> Iterator[dict[str, Tensor]]:
            for _ in range(samples):
                yield {
                    name: p + self.stds[name] * torch.randn(p.shape, generator=start, device=p.device)
                    for name, p in self.model.named_parameters()
                }

        sources = [*self.model.parameters(), *self.stds.values()]
        drawn = self.cache.samples(generator, samples, sources, draw, cache=fits_cache(samples, self.model))
        passes = [functional_call(self.model, weights, (images,)) for weights in drawn]
        return torch.stack([self.likelihood.predictive(outputs) for outputs in passes])

    def state(self) -> State:
        """The network's tensors and the stds."""
        return state_with(self.model, self.stds)

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.stds = restore_with(self.model, state)


def point(model: nn.Module, likelihood: Likelihood) -> WeightPosterior:
    """Return the network with no width around it."""
    return WeightPosterior(
        model, likelihood, {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    )
