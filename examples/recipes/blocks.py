"""A linear classifier of the mean colours of 4 x 4 blocks, as a baseline that must be beaten."""

from __future__ import annotations

from torch import Tensor, nn


class Blocks(nn.Module):
    """Logistic regression on 48 mean colours, for images of any size."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(48, outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 48), the input of the last layer."""
        features: Tensor = self.pool(x).flatten(1)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def blocks(*, outputs: int = 1) -> Blocks:
    """Logistic regression on mean colours; 49 weights with one output."""
    return Blocks(outputs)
