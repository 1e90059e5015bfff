"""LeNet-5 with average pooling (LeCun et al. 1998), small enough for Hamiltonian Monte Carlo over all its weights.

61,751 weights at width 6 with 7 outputs, the network of the approximate-inference competition's DermaMNIST task.
"""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two 5x5 convolutions, three linear layers; no batch norm.

    The second pooling averages to 5x5 whatever the size of the image, so that the number of weights does not depend
    on it; at 28 px it is LeNet's own 2x2 pooling. `activation`: samplers that follow gradients want a smooth one.
    """

    def __init__(self, width: int, outputs: int, activation: type[nn.Module]) -> None:
        super().__init__()
        maps, hidden, last = round(width * 8 / 3), 20 * width, 14 * width
        self.conv1, self.act1 = nn.Conv2d(3, width, 5, padding=2), activation()
        self.pool1 = nn.AvgPool2d(2)
        self.conv2, self.act2 = nn.Conv2d(width, maps, 5), activation()
        self.pool2 = nn.AdaptiveAvgPool2d(5)
        self.fc1, self.act3 = nn.Linear(25 * maps, hidden), activation()
        self.fc2, self.act4 = nn.Linear(hidden, last), activation()
        self.fc = nn.Linear(last, outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 14 width), the input of the last layer."""
        x = self.pool1(self.act1(self.conv1(x)))
        x = self.pool2(self.act2(self.conv2(x)))
        x = self.act3(self.fc1(x.flatten(1)))
        features: Tensor = self.act4(self.fc2(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def lenet(*, width: int = 6, outputs: int = 1) -> LeNet:
    """Return a network of 5 layers with weights, 61,751 at width 6 with 7 outputs.

    Args:
        width: Number of channels of the first layer.
        outputs: Number of outputs.
    """
    return LeNet(width, outputs, nn.ReLU)


def lenet_smooth(*, width: int = 6, outputs: int = 1) -> LeNet:
    """LeNet with SiLU for ReLU, which gradient-based samplers follow better; as many weights."""
    return LeNet(width, outputs, nn.SiLU)
