"""ResNet-20 with filter response normalisation and swish (Izmailov et al. 2021): 274,042 weights at 10 outputs.

Filter response normalisation (Singh & Krishnan 2020) looks at one image alone, so that the likelihood is a product
over images, which batch norm's is not. The network is the JAX one, whose posterior was sampled; the competition's
PyTorch copy of it never downsamples and has 281,082 weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


class FilterResponseNorm(nn.Module):
    """max(γ x / √(mean over the image of x² + ε) + β, τ), one γ, β, τ per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(channels, 1, 1))
        self.tau = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> the same shape."""
        scale = (x.square().mean(dim=(2, 3), keepdim=True) + 1e-6).rsqrt()
        return torch.maximum(self.gamma * x * scale + self.beta, self.tau)

    def initialise(self, generator: torch.Generator) -> None:
        """Normalise and rectify at 0."""
        self.gamma.fill_(1)
        self.beta.fill_(0)
        self.tau.fill_(0)


class Layer(nn.Module):
    """Convolution and normalisation; the padding is JAX's `SAME`: with stride 2 only at the right and the bottom."""

    def __init__(self, inputs: int, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, channels, kernel, stride)
        self.norm = FilterResponseNorm(channels)
        total = kernel - stride if stride > 1 else kernel - 1
        before = max(0, total) // 2
        after = max(0, total) - before
        self.padding = (before, after, before, after)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, channels, H / stride, W / stride)."""
        out: Tensor = self.norm(self.conv(pad(x, self.padding)))
        return out


class FRNBlock(nn.Module):
    """Two layers and a shortcut, projected where the size changes."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.layer1, self.layer2 = Layer(inputs, channels, 3, stride), Layer(channels, channels, 3, 1)
        self.shortcut = Layer(inputs, channels, 1, stride) if stride > 1 else nn.Identity()
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, channels, H / stride, W / stride)."""
        out: Tensor = self.act(self.shortcut(x) + self.layer2(self.act(self.layer1(x))))
        return out


class ResNetFRN(nn.Module):
    """Three stages of three blocks with 1, 2 and 4 times `width` channels."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.stem, self.act = Layer(3, width, 3, 1), nn.SiLU()
        blocks, inputs = [], width
        for stage in range(3):
            for block in range(3):
                channels = width * 2**stage
                blocks.append(FRNBlock(inputs, channels, 2 if stage and not block else 1))
                inputs = channels
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 4 width), the input of the last layer."""
        features: Tensor = self.blocks(self.act(self.stem(x)))
        return features.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def resnet20_frn_swish(*, width: int = 16, outputs: int = 10) -> ResNetFRN:
    """19 convolutions and one linear layer; 274,042 weights at width 16 with 10 outputs."""
    return ResNetFRN(width, outputs)
