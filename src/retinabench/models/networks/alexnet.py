"""The competition's AlexNet-like network for CIFAR-10 with swish: 1,488,202 weights at 10 outputs and width 64."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad

from retinabench.models.registry import takes


class AlexNet(nn.Module):
    """Two 3x3 convolutions with pooling, three 2x2 convolutions that keep the size, three linear layers.

    For images of 32 x 32 pixels. The 2x2 convolutions are padded at the right and at the bottom, as `SAME` is in JAX.
    """

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 4 * width, 2)
        self.conv4 = nn.Conv2d(4 * width, 2 * width, 2)
        self.conv5 = nn.Conv2d(2 * width, width, 2)
        self.pool, self.act = nn.MaxPool2d(2), nn.SiLU()
        self.fc1, self.fc2 = nn.Linear(64 * width, 4 * width), nn.Linear(4 * width, 4 * width)
        self.fc = nn.Linear(4 * width, outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, 32, 32) -> (B, 4 width), the input of the last layer."""
        for conv in (self.conv1, self.conv2):
            x = self.pool(self.act(conv(x)))
        for conv in (self.conv3, self.conv4, self.conv5):
            x = self.act(conv(pad(x, (0, 1, 0, 1))))
        features: Tensor = self.act(self.fc2(self.act(self.fc1(x.flatten(1)))))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, 32, 32) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


@takes("images of 32 x 32 pixels")
def alexnet_swish(*, width: int = 64, outputs: int = 10) -> AlexNet:
    """5 convolutions and 3 linear layers; 1,488,202 weights at width 64 with 10 outputs."""
    return AlexNet(width, outputs)
