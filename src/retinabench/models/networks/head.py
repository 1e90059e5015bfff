"""The head that is trained alone, on the features of a pretrained trunk."""

from __future__ import annotations

from torch import Tensor, nn


class Head(nn.Module):
    """One linear layer on features, or a hidden layer and one.

    `dropout_sites`: the features, and the hidden layer where there is one.

    Args:
        features: Number D of features.
        outputs: Number of outputs.
        hidden: Units of the hidden layer; None: there is none.
    """

    def __init__(self, features: int, outputs: int, hidden: int | None = None) -> None:
        super().__init__()
        self.input = nn.Identity()
        self.hidden = None if hidden is None else nn.Linear(features, hidden)
        self.act = nn.ReLU()
        self.fc = nn.Linear(features if hidden is None else hidden, outputs)
        self.dropout_sites = ("input",) if hidden is None else ("input", "act")

    def features(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D) or (B, hidden), the input of the last layer."""
        x = self.input(x)
        return x if self.hidden is None else self.act(self.hidden(x))

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, D) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits
