"""EfficientNet-Lite 0 to 4: EfficientNet without squeeze-and-excitation, with ReLU6, and with a stem and a head that keep their width.

The parameters have timm's names (`tf_efficientnet_lite0` …), so that weights in that layout load as they are. Convolutions of
stride 2 pad as TensorFlow does: where the padding is odd, the extra row or column is at the end.

References:
    Tan and Le, EfficientNet: rethinking model scaling for convolutional neural networks, ICML 2019. The Lite variants are
    those of the TensorFlow TPU repository (`efficientnet/lite`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

Pool = Literal["mean", "mean_max"]
STEM, HEAD = 32, 1280  # channels, in every variant
EPS, MOMENTUM = 1e-3, 0.01  # of the batch norms, as trained


# Of each resolution: number of blocks, their kernel, the stride of the first, expansion and output channels, unscaled.
STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)  # fmt: skip


class DepthwiseBlock(nn.Module):
    """A depthwise and a pointwise convolution; with a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv_dw = _conv(inputs, inputs, kernel, stride, groups=inputs)
        self.bn1 = _norm(inputs)
        self.act1 = nn.ReLU6(inplace=True)
        self.conv_pw = _conv(inputs, outputs, 1)
        self.bn2 = _norm(outputs)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        out: Tensor = self.act1(self.bn1(self.conv_dw(_same(x, self.conv_dw))))
        out = self.bn2(self.conv_pw(out))
        return out + x if self.shortcut else out


class InvertedResidual(nn.Module):
    """A pointwise expansion, a depthwise convolution and a pointwise projection; with a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.conv_pw = _conv(inputs, width, 1)
        self.bn1 = _norm(width)
        self.act1 = nn.ReLU6(inplace=True)
        self.conv_dw = _conv(width, width, kernel, stride, groups=width)
        self.bn2 = _norm(width)
        self.act2 = nn.ReLU6(inplace=True)
        self.conv_pwl = _conv(width, outputs, 1)
        self.bn3 = _norm(outputs)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        out: Tensor = self.act1(self.bn1(self.conv_pw(x)))
        out = self.act2(self.bn2(self.conv_dw(_same(out, self.conv_dw))))
        out = self.bn3(self.conv_pwl(out))
        return out + x if self.shortcut else out


class EfficientNetLite(nn.Module):
    """Stem, seven stages, a pointwise head, pooling, one linear layer."""

    def __init__(self, width: float, depth: float, *, outputs: int = 1, pool: Pool = "mean") -> None:
        super().__init__()
        self.pool = pool
        self.conv_stem = _conv(3, STEM, 3, 2)
        self.bn1 = _norm(STEM)
        self.act1 = nn.ReLU6(inplace=True)
        stages, inputs = [], STEM
        for number, (count, kernel, stride, expansion, channels) in enumerate(STAGES):
            outputs_of = _channels(channels * width)
            blocks: list[nn.Module] = []
            for block in range(count if number in (0, len(STAGES) - 1) else math.ceil(count * depth)):
                step = 1 if block else stride
                if expansion == 1:
                    blocks.append(DepthwiseBlock(inputs, outputs_of, kernel, step))
                else:
                    blocks.append(InvertedResidual(inputs, outputs_of, kernel, step, expansion))
                inputs = outputs_of
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = _conv(inputs, HEAD, 1)
        self.bn2 = _norm(HEAD)
        self.act2 = nn.ReLU6(inplace=True)
        self.classifier = nn.Linear(HEAD * (2 if pool == "mean_max" else 1), outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        x = self.act1(self.bn1(self.conv_stem(_same(x, self.conv_stem))))
        x = self.act2(self.bn2(self.conv_head(self.blocks(x))))
        features = x.mean(dim=(2, 3))
        if self.pool == "mean_max":
            features = torch.cat([features, x.amax(dim=(2, 3))], dim=1)
        logits: Tensor = self.classifier(features)
        return logits


# Factors on width and depth. They were made for images of 224, 240, 260, 280 and 300 px.
efficientnet_lite0 = partial(EfficientNetLite, 1.0, 1.0)  # 3,372,289 parameters with one output
efficientnet_lite1 = partial(EfficientNetLite, 1.0, 1.1)
efficientnet_lite2 = partial(EfficientNetLite, 1.1, 1.2)
efficientnet_lite3 = partial(EfficientNetLite, 1.2, 1.4)
efficientnet_lite4 = partial(EfficientNetLite, 1.4, 1.8)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias; one of stride 2 does not pad, since `_same` did."""
    padding = 0 if stride > 1 else kernel // 2
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=padding, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPS, momentum=MOMENTUM)


def _same(x: Tensor, conv: nn.Module) -> Tensor:
    """Pad (B, C, H, W) so that a convolution of stride s gives ceil(H / s) rows; the end gets the odd one."""
    (kernel, _), (stride, _) = conv.kernel_size, conv.stride  # type: ignore[misc]  # torch's stubs
    if stride == 1:
        return x
    before_after = []
    for side in (x.shape[3], x.shape[2]):
        missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        before_after += [missing // 2, missing - missing // 2]
    return pad(x, before_after)


def _channels(wanted: float) -> int:
    """The multiple of 8 nearest to the wanted number, not more than 10 % below it."""
    channels = max(8, int(wanted + 4) // 8 * 8)
    return channels + 8 if channels < 0.9 * wanted else channels
