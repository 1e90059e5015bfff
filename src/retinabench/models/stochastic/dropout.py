"""Dropout that stays on in prediction, and where it is put into a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.models.stochastic.drawing import Draw, Drawing, channels_last

STEPS = 2**16  # of the rate
# Names of classes, in any case: other packages, such as timm, have activations of their own.
ACTIVATIONS = {
    "relu", "relu6", "leakyrelu", "prelu", "elu", "celu", "selu", "gelu", "gelutanh", "quickgelu", "silu", "swish", "mish",
    "hardswish", "hardmish", "softplus", "tanh",
}  # fmt: skip
PIECE = 2**17  # entries of a mask that a processor draws at a time: they stay in its cache


class Dropout(Drawing):
    """Element-wise dropout that is always on: keep with probability 1 - rate, scale by 1 / (1 - rate).

    Gal & Ghahramani 2016: at prediction the noise stays, and every pass is one posterior sample. The rate is rounded to
    a multiple of 2^-16, for drop and scale alike, so that the mean is kept: a mask of sixteen bits costs half of one of
    floats.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.steps = min(round(rate * STEPS), STEPS - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same out."""
        return self.each_draw(x, self._drop) if self.steps else x

    def _drop(self, x: Tensor, draw: Draw) -> Tensor:
        keep = _mask(x.shape, self.steps, x.dtype, draw.generator)
        in_place = keep.stride() == x.stride() and not torch.is_grad_enabled()
        return keep.mul_(x) if in_place else x * keep  # in the layout of x


def _mask(shape: torch.Size, steps: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw 0 with probability `steps` / 2^16, else the inverse of the other probability; laid out channels-last."""

    def source(shape: tuple[int, ...], *, generator: torch.Generator, device: torch.device) -> Tensor:
        keep = torch.empty(shape, dtype=dtype, device=device)
        flat = keep.view(-1)
        for piece in torch.split(flat, PIECE if device.type == "cpu" else max(1, len(flat))):
            numbers = torch.empty(-(-len(piece) // 4), dtype=torch.int64, device=device)  # 64 bits are four numbers
            bits = numbers.random_(-(2**63), None, generator=generator).view(torch.int16)[: len(piece)]
            piece.copy_(bits.float().ge_(steps - STEPS // 2).mul_(STEPS / (STEPS - steps)))
        return keep

    return channels_last(source, shape, generator)


def add_dropout(model: nn.Module, rate: float) -> nn.Module:
    """Put `Dropout(rate)` behind the sites of `model`, in place; names of parameters stay as they are."""
    sites = dropout_sites(model)
    if not sites:
        raise InputError(
            f"the network {type(model).__name__} has no activation modules to put dropout behind",
            hint="Name modules of it in its attribute dropout_sites, or train more of its stages.",
        )
    for site in sites:
        parent, _, name = site.rpartition(".")
        home, module = model.get_submodule(parent), model.get_submodule(site)
        if isinstance(home, nn.Sequential) and name == str(len(home) - 1):
            home.append(Dropout(rate))
        else:
            setattr(home, name, nn.Sequential(module, Dropout(rate)))
    return model


def dropout_sites(model: nn.Module) -> tuple[str, ...]:
    """Name the modules behind which dropout goes: the network's own `dropout_sites`, or else every activation.

    Where layers with parameters follow the last activation, as the norm of a transformer or of a ConvNeXt does, the features of
    timm's networks have dropout too: in residual branches that begin near 0, noise alone changes nothing.
    Where stages are frozen, their sites are left out: those that are registered before the first trained layer.
    """
    order = {name: place for place, (name, _) in enumerate(model.named_modules())}
    named = getattr(model, "dropout_sites", None)
    if named is None:
        kinds = {name: {kind.__name__.lower() for kind in type(one).__mro__} for name, one in model.named_modules()}
        named = [name for name, of in kinds.items() if of & ACTIVATIONS]
        named += _before_head(model, order, named)
    if all(parameter.requires_grad for parameter in model.parameters()):
        return tuple(named)
    trained = [
        order[name]
        for name, module in model.named_modules()
        if any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    ]
    return tuple(site for site in named if trained and order[site] > min(trained))


def _before_head(model: nn.Module, order: dict[str, int], named: list[str]) -> list[str]:
    """The network's `before_head` where the last layer of its trunk comes after the last activation."""
    site = getattr(model, "before_head", None)
    if site is None:
        return []
    layers = [order[name.rpartition(".")[0]] for name, _ in model.named_parameters()]
    last = max(place for place in layers if place < order[site])
    return [site] if last > max((order[name] for name in named), default=0) else []
