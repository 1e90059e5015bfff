"""Dropout that stays on, and the places where it goes."""

from __future__ import annotations

from torch import Tensor, nn

from retinabench.models.stochastic.drawing import Draw, Drawing, sixteen_bits

STEPS = 2**16  # of the rate


class Dropout(Drawing):
    """Element-wise dropout that is always on: keep with probability 1 - rate, scale by 1 / (1 - rate).

    Gal & Ghahramani 2016: at prediction the noise stays, and every pass is one posterior sample. The rate is rounded to
    a multiple of 2^-16, for drop and scale alike, so that the mean is kept: a mask of sixteen bits costs half of one of
    floats.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.steps = min(round(rate * STEPS), STEPS - 1)

    @property
    def rate(self) -> float:
        """The probability to drop."""
        return self.steps / STEPS

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same out."""
        return self.each_draw(x, self._drop) if self.steps else x

    def _drop(self, x: Tensor, draw: Draw) -> Tensor:
        bits = sixteen_bits(x.shape, draw.generator).float()
        keep = bits.ge_(self.steps - STEPS // 2).mul_(1 / (1 - self.rate))
        return x * keep.to(x.dtype)


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
