"""The weights that a prediction's samples drew for its first batch, kept for the next ones.

A posterior over weights draws the same S functions for every batch (`base.rewound`), so that drawing them once is the
same bits and saves S draws of all weights per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from retinabench.methods.base import rewound

T = TypeVar("T")
KEPT_VALUES = 2**28  # S times the number of weights: 1 GiB of float32


def room(samples: int, model: nn.Module) -> bool:
    """Say whether so many sets of the weights of `model` may be kept."""
    return samples * sum(p.numel() for p in model.parameters()) <= KEPT_VALUES


class Kept(Generic[T]):
    """The last samples, and what they were drawn from; anything else is drawn anew, such as after a training step."""

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
        keep: bool,
    ) -> Iterable[T]:
        """Return what `draw` yields from the beginning of the generator's stream, `count` samples, or what it yielded.

        sources: every tensor that the samples depend on. PyTorch counts the changes of a tensor in place, and another
        tensor is another object: both end the validity of what is kept. keep: see `room`.
        """
        if not keep:
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
