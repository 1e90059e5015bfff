"""ResNet v1.5 (He et al. 2015, stride in the 3x3 convolution), with timm's and torchvision's parameter names.

`resnet50(outputs=1)` has 23,510,081 trainable parameters. `stem="small"` replaces the 7x7 stride-2 convolution and
the pooling by one 3x3 stride-2 convolution, for images of 32 to 128 pixels; `width` scales all channels (64 is the
published network).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import Tensor, nn

Stem = Literal["standard", "small"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (ResNet-18, -34)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3)
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
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.act2 = nn.ReLU(inplace=True)
        self.conv3 = _conv(width, width * 4, 1)
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

    Args:
        block: Kind of the blocks.
        depths: Number of blocks of each stage.
        width: Number of channels of the first layer; 64 as published.
        outputs: Number of outputs.
        stem: `standard`, or `small` for images of 32 to 128 pixels.
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
        self.conv1 = _conv(3, width, 7, 2) if stem == "standard" else _conv(3, width, 3, 2)
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
            if (isinstance(module, nn.ReLU) and not name.endswith(f".{last}"))
            or name.endswith("downsample.1")
        )

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D), the input of the last layer."""
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            x = self.get_submodule(f"layer{number}")(x)
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


resnet18 = partial(ResNet, BasicBlock, (2, 2, 2, 2))  # 11.2 million parameters
resnet34 = partial(ResNet, BasicBlock, (3, 4, 6, 3))  # 21.3 million parameters
resnet50 = partial(
    ResNet, Bottleneck, (3, 4, 6, 3)
)  # of the Retina Benchmark; 23,510,081 parameters with one output


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    if stride == 2 and inputs < 8:
        # The weight gradient of such a convolution with stride 2 writes past its arrays on processors with AVX2 (oneDNN of PyTorch
        # 2.13), which ends the process or could change other numbers.
        return _OfEverySecond(_conv(inputs, outputs, 1), nn.BatchNorm2d(outputs))
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class _OfEverySecond(nn.Sequential):
    """Modules of every second row and column: for a 1x1 convolution the same as its stride 2."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) -> (B, outputs, H / 2, W / 2)."""
        x = x[:, :, ::2, ::2]
        for module in self:
            x = module(x)
        return x
