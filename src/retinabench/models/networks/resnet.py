"""Residual networks: ResNet v1.5 with timm's and torchvision's parameter names, and ResNet-20 with filter response normalisation."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

Stem = Literal["standard", "small"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (ResNet-18, -34, and with dilation DRN)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 3, stride, dilation)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = convolution(width, width, 3, 1, dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)
        self.act2 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, width, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.act1(self.bn1(self.conv1(x)))
        out: Tensor = self.act2(self.bn2(self.conv2(x)) + shortcut)
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut (ResNet-50); the stride sits in the 3x3 (v1.5)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.act2 = nn.ReLU(inplace=True)
        self.conv3 = convolution(width, width * 4, 1)
        self.bn3 = nn.BatchNorm2d(width * 4)
        self.downsample = _shortcut(inputs, width * 4, stride)
        self.act3 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, 4 * width, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.act2(self.bn2(self.conv2(x)))
        out: Tensor = self.act3(self.bn3(self.conv3(x)) + shortcut)
        return out


class ResNet(nn.Module):
    """Stem, four stages of blocks, global average pool, one linear layer.

    `dropout_sites` names the modules after which MC dropout drops (Filos et al., as released for the Retina
    Benchmark): every activation that no residual sum precedes, and the norm of each projection shortcut.
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, ...],
        *,
        width: int = 64,
        outputs: int = 1,
        stem: Stem = "standard",
    ) -> None:
        super().__init__()
        self.conv1 = convolution(3, width, 7 if stem == "standard" else 3, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "standard" else nn.Identity()
        inputs = width
        for stage, depth in enumerate(depths):
            channels = width * 2**stage
            blocks = []
            for number in range(depth):
                blocks.append(block(inputs, channels, 2 if stage and not number else 1))
                inputs = channels * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, outputs)
        last = f"act{2 if block is BasicBlock else 3}"
        self.dropout_sites = tuple(
            name
            for name, module in self.named_modules()
            if (isinstance(module, nn.ReLU) and not name.endswith(f".{last}")) or name.endswith("downsample.1")
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> logits (B, outputs)."""
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            x = self.get_submodule(f"layer{number}")(x)
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


resnet18 = partial(ResNet, BasicBlock, (2, 2, 2, 2))  # 11.2 million parameters
resnet34 = partial(ResNet, BasicBlock, (3, 4, 6, 3))  # 21.3 million parameters
resnet50 = partial(ResNet, Bottleneck, (3, 4, 6, 3))  # of the Retina Benchmark; 23,510,081 parameters with one output


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2 * dilation, dilation=dilation, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    if stride == 2 and inputs < 8:
        # The weight gradient of such a convolution with stride 2 writes past its arrays on processors with AVX2 (oneDNN of PyTorch
        # 2.13), which ends the process or could change other numbers.
        return _OfEverySecond(convolution(inputs, outputs, 1), nn.BatchNorm2d(outputs))
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class _OfEverySecond(nn.Sequential):
    """Modules of every second row and column: for a 1x1 convolution the same as its stride 2."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) -> (B, outputs, H / 2, W / 2)."""
        x = x[:, :, ::2, ::2]
        for module in self:
            x = module(x)
        return x


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
        total = max(0, kernel - stride)
        self.padding = (total // 2, total - total // 2) * 2

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
    """19 convolutions and one linear layer; 274,042 weights at width 16 with 10 outputs.

    Three stages of three blocks with 1, 2 and 4 times `width` channels (Izmailov et al. 2021), as in JAX. Filter response normalisation looks at one image alone, so that the likelihood is a product over images, which batch norm's is
    not. The competition's PyTorch copy never downsamples and has 281,082 weights.
    """

    def __init__(self, *, width: int = 16, outputs: int = 10) -> None:
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

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.blocks(self.act(self.stem(x))).mean(dim=(2, 3)))
        return logits
