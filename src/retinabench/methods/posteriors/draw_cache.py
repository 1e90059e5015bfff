"""A cache of posterior samples of the weights between the batches of a prediction.

A posterior over weights draws the same S functions for every batch (`rewound`): drawing them once gives the same
bits and saves S draws of all weights per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from retinabench.methods.training.posterior import rewound

T = TypeVar("T")
CACHED_VALUES = 2**28  # S times the number of weights: 1 GiB of float32


def fits_cache(samples: int, model: nn.Module) -> bool:
    """Tell whether so many sets of the weights of `model` may be cached."""
    return samples * sum(p.numel() for p in model.parameters()) <= CACHED_VALUES


class DrawCache(Generic[T]):
    """The last samples and what they were drawn from; after a change of that, they are drawn anew."""

    def __init__(self) -> None:
        self._request: tuple[torch.device, int, int] | None = None
        self._sources: list[tuple[Tensor, int]] = []
        self._samples: list[T] = []

    def samples(
        self,
        generator: torch.Generator,
        count: int,
        sources: Sequence[Tensor],
        draw: Callable[[torch.Generator], Iterable[T]],
        *,
        cache: bool,
    ) -> Iterable[T]:
        """Return `count` samples that `draw` yields from the beginning of the generator's stream, or yielded before.

        Args:
            generator: Its seed and device identify the stream.
            count: Number of samples.
            sources: Every tensor that the samples depend on. PyTorch counts the changes of a tensor in place, and another
                tensor is another object: both invalidate the cache.
            draw: Yields the samples.
            cache: Whether they may be cached (see `fits_cache`).
        """
        if not cache:
            return draw(rewound(generator))
        request = (generator.device, generator.initial_seed(), count)
        versions = [tensor._version for tensor in sources]
        same = len(sources) == len(self._sources) and all(
            one is other and now == then
            for one, now, (other, then) in zip(sources, versions, self._sources, strict=True)
        )
        if request != self._request or not same:
            # Freed before the new ones take their memory, and forgotten in case drawing them fails.
            self._samples, self._request = [], None
            self._samples = list(draw(rewound(generator)))
            self._request, self._sources = request, list(zip(sources, versions, strict=True))
        return self._samples
