"""Networks with few weights: one hidden layer, heads on features, and networks whose posterior can be known."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from retinabench.models.registry import takes


class MLP(nn.Module):
    """`inputs` numbers, `width` hidden units, `outputs`. MLP(8, 50, 2, nn.ReLU) has 552 weights."""

    def __init__(self, inputs: int, width: int, outputs: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.fc1, self.act1 = nn.Linear(inputs, width), activation()
        self.fc = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.act1(self.fc1(x.flatten(1))))
        return logits


class ImageMLP(MLP):
    """The same on images (B, 3, H, W) of any size, averaged over `grid` x `grid` blocks."""

    def __init__(self, grid: int, width: int, outputs: int) -> None:
        super().__init__(3 * grid**2, width, outputs, nn.ReLU)
        self.pool = nn.AdaptiveAvgPool2d(grid)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        return super().forward(self.pool(x))


def mlp(*, width: int = 50, outputs: int = 1, columns: int | None = None) -> MLP:
    """One hidden layer on the mean colours of 8 x 8 blocks, 9,701 weights at width 50, or on the columns of a table."""
    return ImageMLP(8, width, outputs) if columns is None else MLP(columns, width, outputs, nn.ReLU)


def linear(*, outputs: int = 1, columns: int | None = None) -> nn.Module:
    """Logistic regression on the mean colours of 8 x 8 blocks, 193 weights, or on the columns of a table."""
    if columns is not None:
        return Head(columns, outputs)
    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), Head(192, outputs))


@takes("tables of 8 numbers")
def mlp_8_50_2(*, width: int = 50, outputs: int = 2) -> MLP:
    """The network of the UCI regressions; 552 weights at width 50 with 2 outputs."""
    return MLP(8, width, outputs, nn.ReLU)


class Head(nn.Module):
    """One linear layer on features, or a hidden layer and one."""

    def __init__(self, features: int, outputs: int, hidden: int | None = None) -> None:
        super().__init__()
        self.input = nn.Identity()
        self.hidden = None if hidden is None else nn.Linear(features, hidden)
        self.act = nn.ReLU()
        self.fc = nn.Linear(features if hidden is None else hidden, outputs)
        self.dropout_sites = ("input",) if hidden is None else ("input", "act")

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, D) -> logits (B, outputs)."""
        x = self.input(x)
        logits: Tensor = self.fc(x if self.hidden is None else self.act(self.hidden(x)))
        return logits


FEATURES = "tables of 8 numbers"


@takes(FEATURES)
def head_8(*, outputs: int = 2) -> Head:
    """One linear layer on 8 features; 45 weights with 5 outputs."""
    return Head(8, outputs)


@takes(FEATURES)
def head_8_8(*, width: int = 8, outputs: int = 2) -> MLP:
    """One hidden layer of 8 units on 8 features; 117 weights with 5 outputs."""
    return MLP(8, width, outputs, nn.ReLU)


@takes(FEATURES)
def head_8_50_smooth(*, width: int = 50, outputs: int = 2) -> MLP:
    """`head_8_8` with 50 units of SiLU, which gradient-based samplers follow better; 552 weights with 2 outputs."""
    return MLP(8, width, outputs, nn.SiLU)


@takes(FEATURES)
def head_8_72_smooth(*, width: int = 72, outputs: int = 2) -> MLP:
    """The same with 72 units; 1,013 weights with 5 outputs."""
    return MLP(8, width, outputs, nn.SiLU)


@takes(FEATURES)
def head_8_350_smooth(*, width: int = 350, outputs: int = 2) -> MLP:
    """The same with 350 units; 4,905 weights with 5 outputs."""
    return MLP(8, width, outputs, nn.SiLU)


@takes("tables of 2 numbers")
def head_2(*, outputs: int = 2) -> Head:
    """One linear layer on 2 features; 6 weights with 2 outputs."""
    return Head(2, outputs)


def student_2(z: Tensor) -> Tensor:
    """Map N(0, 1) to Student's t with 2 degrees of freedom, by quantiles.

    With p = Φ(z) the quantile is (2 p - 1) / √(2 p (1 - p)); both factors of p (1 - p) are computed without cancellation.
    """
    u = z / math.sqrt(2)
    tails: Tensor = torch.erfc(u) * torch.erfc(-u)
    return torch.erf(u) * (2 / tails).sqrt()


@takes(FEATURES)
class HeavyHead(nn.Module):
    """One linear layer on 8 features with a heavy-tailed prior; 45 weights with 5 outputs.

    The weights have Student's t with 2 degrees of freedom as prior where the parameters have N(0, 1).
    """

    def __init__(self, *, outputs: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, 8))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights as those of any last layer; `models.build.initialise` sets the biases to 0."""
        nn.init.normal_(self.weight, 0, 0.01, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> logits (B, outputs)."""
        return nn.functional.linear(x, student_2(self.weight), student_2(self.bias))


@takes(FEATURES)
class HierarchicalHead(nn.Module):
    """One linear layer on 8 features whose prior has a scale of its own; 46 weights with 5 outputs.

    The weights are w = exp(h) z, h ~ N(0, 1) and z ~ N(0, I): they share a scale that is inferred.
    """

    def __init__(self, *, outputs: int = 2) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(1))
        self.fc = nn.Linear(8, outputs)

    def initialise(self, generator: torch.Generator) -> None:
        """Set the scale to 1; `models.build.initialise` draws the layer."""
        nn.init.zeros_(self.log_scale)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> logits (B, outputs)."""
        logits: Tensor = self.log_scale.exp() * self.fc(x)
        return logits


@takes("tables of 2 numbers")
class Banana(nn.Module):
    """The bent posterior; 2 weights, 2 outputs.

    Of the weights u, v the second logit is a (u + v²) + b v for inputs (a, b), the first 0.
    Where b is 0 the data determine u + v² alone, and the posterior is a bent ridge; b tells where along it the weights are.
    """

    def __init__(self, *, outputs: int = 2) -> None:
        super().__init__()
        self.fc = nn.Linear(1, outputs, bias=False)  # a layer, so that methods that make layers sample can

    def forward(self, x: Tensor) -> Tensor:
        """(B, 2) -> logits (B, 2)."""
        both = self.fc(torch.ones_like(x[:, :1]))
        # Not unpacked: methods about a last layer put an identity here, and are refused later.
        u, v = both[:, 0], both[:, -1]
        logit = x[:, 0] * (u + v * v) + x[:, 1] * v
        return torch.stack([torch.zeros_like(logit), logit], dim=1)
