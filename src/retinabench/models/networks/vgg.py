"""The VGG-like network of Filos et al. 2019; no batch norm.

3x3 convolutions with ReLU as in the released code, or with leaky ReLU 0.2 as in the paper (`activation`): 1 of b channels with stride 2, 2 of b, 2 of 2b,
4 of 4b and 4 of 8b, with 3x3 stride-2 max pooling between the groups; mean and maximum of every channel; one linear
layer. 2,657,345 parameters at width b = 32 with one output. A mean-field posterior over the kernels (a mean and a scale
each, biases a mean) has 2,512,159 at b = 22: about as many, which is why the 2019 benchmark chose that width for MFVI.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SLOPE = 0.2  # of the leaky ReLU, below 0


class VGG(nn.Module):
    """Five groups of convolutions. `dropout_sites`: every activation but the last, 12 of 13, as released."""

    initialisation = "glorot_uniform"

    def __init__(self, width: int, outputs: int, activation: str = "relu") -> None:
        super().__init__()
        self.stem = _group(3, width, 1, activation, stride=2)
        self.group2 = _group(width, width, 2, activation)
        self.group3 = _group(width, 2 * width, 2, activation)
        self.group4 = _group(2 * width, 4 * width, 4, activation)
        self.group5 = _group(4 * width, 8 * width, 4, activation)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.fc = nn.Linear(16 * width, outputs)
        kinds = (nn.ReLU, nn.LeakyReLU)
        activations = [name for name, module in self.named_modules() if isinstance(module, kinds)]
        self.dropout_sites = tuple(activations[:-1])

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 16 width), the input of the last layer."""
        for group in (self.stem, self.group2, self.group3, self.group4):
            x = self.pool(group(x))
        x = self.group5(x)
        return torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def vgg(*, width: int = 32, outputs: int = 1, activation: str = "relu") -> VGG:
    """Return a network of 13 convolutions; 2,657,345 parameters at width 32.

    Args:
        width: Number of channels of the first layer.
        outputs: Number of outputs.
        activation: ``relu``, or ``leaky_relu`` with slope 0.2 below 0.
    """
    return VGG(width, outputs, activation)


def _group(inputs: int, channels: int, depth: int, activation: str, stride: int = 1) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(depth):
        before = channels if number else inputs
        layers += [nn.Conv2d(before, channels, 3, stride, padding=1), _activation(activation)]
    return nn.Sequential(*layers)


def _activation(name: str) -> nn.Module:
    return nn.LeakyReLU(SLOPE, inplace=True) if name == "leaky_relu" else nn.ReLU(inplace=True)
