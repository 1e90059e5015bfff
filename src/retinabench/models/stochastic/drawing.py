"""Layers that draw noise: their generators, how a layer uses its weight, and how they enter any network.

A pass over R posterior samples carries R * B rows: the batch once per sample, sample after sample. Each sample has a
generator of its own, never the global one, so that its noise is the same whether samples share a pass or not.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from retinabench.core.errors import InputError


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
        self.register_forward_pre_hook(lambda module, inputs: None)

    def each_draw(self, x: Tensor, compute: Callable[[Tensor, Draw], Tensor]) -> Tensor:
        """Apply `compute(rows, draw)` to the rows of each posterior sample: (R * B, ...) -> (R * B, ...)."""
        if not self.draws:
            raise RuntimeError("the network has no generator: call use_generator(model, generator) first")
        if len(self.draws) == 1:
            return compute(x, self.draws[0])
        parts = x.chunk(len(self.draws))
        return torch.cat([compute(rows, draw) for rows, draw in zip(parts, self.draws, strict=True)])

    def kl_terms(self) -> list[Tensor]:
        """Return the divergence of each posterior from its prior, scalars in nats."""
        return []

    def cached(self, draw: Draw, weight: Callable[[], Tensor]) -> Tensor:
        """Return `weight()`, drawn once for a sample with a cache unless gradients are recorded."""
        if draw.cache is None or torch.is_grad_enabled():
            return weight()
        if self not in draw.cache:
            draw.cache[self] = weight()
        return draw.cache[self]


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
    """Return a tensor from `source`, in memory order (N, H, W, C) where it has four axes: noise in another layout than its activations costs a copy at every use."""
    if len(shape) != 4:
        return source(shape, generator=generator, device=generator.device)
    n, c, h, w = shape
    return source((n, h, w, c), generator=generator, device=generator.device).permute(0, 3, 1, 2)


Affine = nn.Linear | nn.Conv2d
Operation = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def operation(layer: Affine) -> Operation:
    """Return f(x, weight, bias) that computes what `layer` does with its own: stride, padding of every mode, dilation and groups are kept."""
    if isinstance(layer, nn.Linear):
        return functional.linear
    stride, dilation, groups = layer.stride, layer.dilation, layer.groups
    if layer.padding_mode == "zeros":
        return partial(functional.conv2d, stride=stride, padding=layer.padding, dilation=dilation, groups=groups)
    sides, mode = tuple(layer._reversed_padding_repeated_twice), layer.padding_mode

    def padded(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = functional.pad(x, sides, mode=mode)
        return functional.conv2d(x, weight, bias, stride=stride, dilation=dilation, groups=groups)

    return padded


def fan_in(weight: Tensor) -> int:
    """Return how many inputs each output sums: He's prior variance is 2 / fan_in. weight (out, in, ...)."""
    return math.prod(weight.shape[1:])


def channels(layer: Affine) -> tuple[int, int]:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return layer.in_channels, layer.out_channels


def per_channel(factors: Tensor, x: Tensor, layer_is_linear: bool) -> Tensor:
    """Return `factors` in a shape in which they multiply `x`."""
    rows, size = factors.shape
    shape = (rows, *[1] * (x.ndim - 2), size) if layer_is_linear else (rows, size, *[1] * (x.ndim - 2))
    return factors.view(shape)


GEOMETRY = (
    "in_features", "out_features", "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
)  # fmt: skip


# Where timm keeps layers that read a table of positions and no images (RelPosMlp, Swin v2): their rows are not those of a batch.
OF_POSITIONS = re.compile(r"(^|\.)(rel_pos|cpb_mlp)(\.|$)")


def swap(model: nn.Module, make: Callable[[Affine], nn.Module]) -> nn.Module:
    """Replace every linear layer and 2-d convolution of `model` by `make(layer)`, in place; return the network.

    A layer that is used in several places stays one layer. A layer whose weight is not trained, as in the frozen stages of a
    pretrained network, is left as it is. Subclasses of the two may compute something else and are
    left as they are too, and so are layers of positions; a warning names the parameters of two or more axes that stay.
    """
    stay = {module for name, module in model.named_modules() if OF_POSITIONS.search(name)}
    kept = [
        f"{name}.{key}".lstrip(".")
        for name, module in model.named_modules()
        if module in stay or type(module) not in (nn.Linear, nn.Conv2d)
        for key, parameter in module.named_parameters(recurse=False)
        if parameter.ndim > 1 and parameter.requires_grad
    ]
    if kept:
        warnings.warn(f"these parameters stay as they are: {', '.join(kept)}", stacklevel=2)
    home = nn.Module()  # so that a network that is a single layer has a parent too
    home.network = model
    made: dict[Affine, nn.Module] = {}
    for parent in [module for module in home.modules() if module not in stay]:
        for name, layer in list(parent._modules.items()):
            if isinstance(layer, Affine) and type(layer) in (nn.Linear, nn.Conv2d) and layer.weight.requires_grad:
                if layer not in made:
                    made[layer] = new = make(layer)
                    for key in GEOMETRY:  # which a network may read, as for padding that depends on them
                        if hasattr(layer, key) and not hasattr(new, key):
                            setattr(new, key, getattr(layer, key))
                setattr(parent, name, made[layer])
    return home.network


def kl_terms(model: nn.Module) -> list[Tensor]:
    return [term for module in model.modules() if isinstance(module, Drawing) for term in module.kl_terms()]


def kl(model: nn.Module) -> Tensor:
    """Return the sum of `kl_terms`, a scalar; raises `InputError` where there are none."""
    terms = kl_terms(model)
    if not terms:
        raise InputError("the network has no linear or convolutional layer that could sample its weights")
    return torch.stack(terms).sum()
