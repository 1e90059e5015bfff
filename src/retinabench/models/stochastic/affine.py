"""How a linear layer or a convolution uses its weight, apart from where the weight comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

Affine = nn.Linear | nn.Conv2d
Operation = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def operation(layer: Affine) -> Operation:
    """Return f(x, weight, bias) that computes what `layer` computes with its own weight and bias.

    Stride, padding of every mode, dilation and groups of a convolution are kept.
    """
    if isinstance(layer, nn.Linear):
        return functional.linear
    stride, dilation, groups = layer.stride, layer.dilation, layer.groups
    if layer.padding_mode == "zeros":
        return partial(
            functional.conv2d, stride=stride, padding=layer.padding, dilation=dilation, groups=groups
        )
    sides, mode = tuple(layer._reversed_padding_repeated_twice), layer.padding_mode

    def padded(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = functional.pad(x, sides, mode=mode)
        return functional.conv2d(x, weight, bias, stride=stride, dilation=dilation, groups=groups)

    return padded


def fan_in(weight: Tensor) -> int:
    """Return how many inputs each output sums: He's prior variance is 2 / fan_in. weight (out, in, ...)."""
    return math.prod(weight.shape[1:])


def channels(layer: Affine) -> tuple[int, int]:
    """Return the numbers of input and output features or channels."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return layer.in_channels, layer.out_channels


def per_channel(factors: Tensor, x: Tensor, layer_is_linear: bool) -> Tensor:
    """Return `factors` in a shape in which they multiply `x`.

    Args:
        factors: (B, channels).
        x: (B, channels, H, W), or (B, ..., features) of a linear layer.
        layer_is_linear: Whether the layer is linear.
    """
    rows, size = factors.shape
    shape = (rows, *[1] * (x.ndim - 2), size) if layer_is_linear else (rows, size, *[1] * (x.ndim - 2))
    return factors.view(shape)
