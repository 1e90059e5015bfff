"""Dilated residual networks, with the parameter names of the released weights (github.com/fyu/drn, drn.py).

References:
    Yu, Koltun and Funkhouser, Dilated residual networks, CVPR 2017: DRN-D, whose first and last layers are plain convolutions against
    the grid-like artefacts of dilation.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

DILATION = (1, 1, 1, 1, 2, 4, 2, 1)  # of the eight levels
STRIDE = (1, 2, 2, 2, 1, 1, 1, 1)
CHANNELS = (1, 2, 4, 8, 16, 32, 32, 32)  # in units of the width


class DilatedBlock(nn.Module):
    """Two dilated 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, stride, dilation)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 1, dilation)
        self.bn2 = nn.BatchNorm2d(width)
        same = stride == 1 and inputs == width
        shortcut = nn.Conv2d(inputs, width, 1, stride, bias=False)
        self.downsample = None if same else nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, width, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(x)) + shortcut)
        return out


class DRN(nn.Module):
    """Eight levels, the last ones dilated instead of strided, global average pool, one linear layer.

    The features have an eighth of the side of the image, where a ResNet's have a thirty-second.
    """

    def __init__(self, depths: tuple[int, ...], *, width: int = 16, outputs: int = 1) -> None:
        super().__init__()
        self.layer0 = nn.Sequential(
            nn.Conv2d(3, width, 7, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        inputs = width
        for level, depth in enumerate(depths):
            channels, dilation, stride = CHANNELS[level] * width, DILATION[level], STRIDE[level]
            parts: list[nn.Module] = []
            for number in range(depth):
                step = 1 if number else stride
                if level in (0, 1, 6, 7):
                    parts += [_conv(inputs, channels, step, dilation), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
                else:
                    parts.append(DilatedBlock(inputs, channels, step, dilation))
                inputs = channels
            self.add_module(f"layer{level + 1}", nn.Sequential(*parts))
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> logits (B, outputs)."""
        for number in range(9):
            x = self.get_submodule(f"layer{number}")(x)
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


drn_d_22 = partial(DRN, (1, 1, 2, 2, 2, 2, 1, 1))  # 15.9 million parameters, 16.4 million with the classes of ImageNet


def _conv(inputs: int, outputs: int, stride: int, dilation: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)
