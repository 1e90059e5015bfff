"""Dilated residual networks, with the parameter names of the released weights (github.com/fyu/drn, drn.py).

References:
    Yu, Koltun and Funkhouser, Dilated residual networks, CVPR 2017: DRN-D, whose first and last layers are plain convolutions against
    the grid-like artefacts of dilation.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from retinabench.models.networks.resnet import BasicBlock, convolution

DILATION = (1, 1, 1, 1, 2, 4, 2, 1)  # of the eight levels
STRIDE = (1, 2, 2, 2, 1, 1, 1, 1)
CHANNELS = (1, 2, 4, 8, 16, 32, 32, 32)  # in units of the width


class DRN(nn.Module):
    """Eight levels, the last ones dilated instead of strided, so that features have an eighth of the image's side; global average pool, one linear layer."""

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
                    layer = convolution(inputs, channels, 3, step, dilation)
                    parts += [layer, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
                else:
                    parts.append(BasicBlock(inputs, channels, step, dilation))
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
