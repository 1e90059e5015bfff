"""Generators of the layers' noise, one for each posterior sample of a pass; never the global one.

A pass over R posterior samples carries R * B rows: the batch once per sample, sample after sample. Each sample has a
generator of its own, so that its noise is the same whether samples share a pass or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Draw(NamedTuple):
    """One posterior sample: where its noise comes from, and its number, which picks its mixture component.

    cache: the weights that layers drew for it in evaluation, where later passes of the sample use them again.
    """

    generator: torch.Generator
    number: int = 0
    cache: dict[nn.Module, Tensor] | None = None


class Drawing(nn.Module):
    """A layer that draws noise."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: Sequence[Draw] = ()
        # In evaluation torch's own transformer layers hand the parameters of their parts to one fused kernel, and the
        # noise would silently be missing; a part with a hook is called.
        self.register_forward_pre_hook(_nothing)

    def each_draw(self, x: Tensor, compute: Callable[[Tensor, Draw], Tensor]) -> Tensor:
        """Apply `compute(rows, draw)` to the rows of each posterior sample: (R * B, ...) -> (R * B, ...)."""
        if not self.draws:
            raise RuntimeError("the network has no generator: call use_generator(model, generator) first")
        if len(self.draws) == 1:
            return compute(x, self.draws[0])
        parts = x.chunk(len(self.draws))
        return torch.cat([compute(rows, draw) for rows, draw in zip(parts, self.draws, strict=True)])

    def cached(self, draw: Draw, weight: Callable[[], Tensor]) -> Tensor:
        """Return `weight()`, drawn once for a sample with a cache unless gradients are recorded."""
        if draw.cache is None or torch.is_grad_enabled():
            return weight()
        if self not in draw.cache:
            draw.cache[self] = weight()
        return draw.cache[self]


def _nothing(module: nn.Module, inputs: object) -> None:
    """Return nothing: a hook without effect."""


def use_draws(model: nn.Module, draws: Sequence[Draw]) -> None:
    """Let the next passes of `model` compute these posterior samples."""
    for module in model.modules():
        if isinstance(module, Drawing):
            module.draws = draws


def use_generator(model: nn.Module, generator: torch.Generator) -> None:
    """Give `generator` to every layer of `model` that draws: each pass is one posterior sample."""
    use_draws(model, [Draw(generator)])


def standard_normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw N(0, 1) on the generator's device; four axes are drawn and laid out channels-last, as our networks are."""
    return channels_last(torch.randn, shape, generator)


def random_signs(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw +1 and -1 with probability 1/2 each."""
    bits = torch.randint(2, shape, generator=generator, device=generator.device, dtype=torch.float32)
    return bits.mul_(2).sub_(1)


def channels_last(source: Callable[..., Tensor], shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Return a tensor of `shape` from `source`, in memory order (N, H, W, C) where there are four axes.

    Noise in another layout than its activations costs a copy at every use.

    Args:
        source: Takes a shape, `generator` and `device`, as `torch.randn`.
        shape: Of the tensor.
        generator: Source of the draws, on whose device it lies.
    """
    if len(shape) != 4:
        return source(shape, generator=generator, device=generator.device)
    n, c, h, w = shape
    return source((n, h, w, c), generator=generator, device=generator.device).permute(0, 3, 1, 2)
