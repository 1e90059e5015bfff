"""One hidden layer: on a table of numbers, or on a picture averaged down to a few blocks."""

from __future__ import annotations

from torch import Tensor, nn


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


class PictureMLP(MLP):
    """The same on pictures (B, 3, H, W) of any size, averaged over `grid` x `grid` blocks."""

    def __init__(self, grid: int, width: int, outputs: int) -> None:
        super().__init__(3 * grid**2, width, outputs, nn.ReLU)
        self.pool = nn.AdaptiveAvgPool2d(grid)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, width), the input of the last layer."""
        return super().features(self.pool(x))


def mlp(*, width: int = 50, outputs: int = 1) -> PictureMLP:
    """The smallest network: what can be told from 8 x 8 blocks of colour."""
    return PictureMLP(8, width, outputs)
