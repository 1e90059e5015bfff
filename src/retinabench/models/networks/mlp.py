"""One hidden layer, on a table of numbers or on an image averaged down to a few blocks."""

from __future__ import annotations

from torch import Tensor, nn

from retinabench.models.registry import takes


class MLP(nn.Module):
    """`inputs` numbers, `width` hidden units, `outputs`. MLP(8, 50, 2, nn.ReLU) has 552 weights."""

    def __init__(self, inputs: int, width: int, outputs: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.fc1, self.act1 = nn.Linear(inputs, width), activation()
        self.fc = nn.Linear(width, outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, inputs) -> (B, width), the input of the last layer."""
        features: Tensor = self.act1(self.fc1(x.flatten(1)))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


class ImageMLP(MLP):
    """The same on images (B, 3, H, W) of any size, averaged over `grid` x `grid` blocks."""

    def __init__(self, grid: int, width: int, outputs: int) -> None:
        super().__init__(3 * grid**2, width, outputs, nn.ReLU)
        self.pool = nn.AdaptiveAvgPool2d(grid)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, width), the input of the last layer."""
        return super().features(self.pool(x))


def mlp(*, width: int = 50, outputs: int = 1) -> ImageMLP:
    """The smallest network: one hidden layer on the mean colours of 8 x 8 blocks; 9,701 weights at width 50."""
    return ImageMLP(8, width, outputs)


@takes("tables of 8 numbers")
def mlp_8_50_2(*, width: int = 50, outputs: int = 2) -> MLP:
    """The network of the UCI regressions; 552 weights at width 50 with 2 outputs."""
    return MLP(8, width, outputs, nn.ReLU)
