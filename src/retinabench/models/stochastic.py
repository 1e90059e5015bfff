"""Layers that draw, and the surgery that puts them into any network.

Every such layer draws from a generator that it is handed (`use_generator`), never from the global one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Element-wise dropout that is always on: keep with probability 1 - rate, scale by 1 / (1 - rate).

    Gal & Ghahramani 2016: at prediction the noise stays, and every pass is one posterior sample.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same out."""
        if self.rate == 0:
            return x
        if self.generator is None:
            raise RuntimeError("hand the network a generator first: use_generator(model, generator)")
        keep = (
            torch.rand(x.shape, generator=self.generator, device=x.device, dtype=torch.float32) >= self.rate
        )
        return x * keep * (1 / (1 - self.rate))


def add_dropout(model: nn.Module, rate: float) -> nn.Module:
    """Put `Dropout(rate)` behind the sites of `model`, in place; names of parameters stay as they are.

    The sites are the network's own `dropout_sites`, or every activation of a network that names none.
    """
    for site in dropout_sites(model):
        parent, _, name = site.rpartition(".")
        home, module = model.get_submodule(parent), model.get_submodule(site)
        if isinstance(home, nn.Sequential) and int(name) == len(home) - 1:
            home.append(Dropout(rate))
        else:
            setattr(home, name, nn.Sequential(module, Dropout(rate)))
    return model


def dropout_sites(model: nn.Module) -> tuple[str, ...]:
    """Name the modules behind which dropout goes."""
    named = getattr(model, "dropout_sites", None)
    if named is not None:
        return tuple(named)
    activations = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Tanh)
    return tuple(name for name, module in model.named_modules() if isinstance(module, activations))


def use_generator(model: nn.Module, generator: torch.Generator) -> None:
    """Hand `generator` to every layer of `model` that draws."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.generator = generator
