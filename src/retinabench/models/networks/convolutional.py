"""Published convolutional networks without batch norm: AlexNet, LeNet, VGG of 2019, and the CNN-LSTM for text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, pad

from retinabench.models.registry import takes


@takes("images of 32 x 32 pixels")
class AlexNet(nn.Module):
    """5 convolutions and 3 linear layers; 1,488,202 weights at width 64 with 10 outputs.

    Two 3x3 convolutions are followed by pooling; three 2x2 keep the size, padded at the right and bottom, as `SAME` is in JAX.
    """

    def __init__(self, *, width: int = 64, outputs: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 4 * width, 2)
        self.conv4 = nn.Conv2d(4 * width, 2 * width, 2)
        self.conv5 = nn.Conv2d(2 * width, width, 2)
        self.pool, self.act = nn.MaxPool2d(2), nn.SiLU()
        self.fc1, self.fc2 = nn.Linear(64 * width, 4 * width), nn.Linear(4 * width, 4 * width)
        self.fc = nn.Linear(4 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, 32, 32) -> logits (B, outputs)."""
        for conv in (self.conv1, self.conv2):
            x = self.pool(self.act(conv(x)))
        for conv in (self.conv3, self.conv4, self.conv5):
            x = self.act(conv(pad(x, (0, 1, 0, 1))))
        logits: Tensor = self.fc(self.act(self.fc2(self.act(self.fc1(x.flatten(1))))))
        return logits


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

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        x = self.pool1(self.act1(self.conv1(x)))
        x = self.pool2(self.act2(self.conv2(x)))
        x = self.act3(self.fc1(x.flatten(1)))
        logits: Tensor = self.fc(self.act4(self.fc2(x)))
        return logits


def lenet(*, width: int = 6, outputs: int = 1) -> LeNet:
    """Return a network of 5 layers with weights, 61,751 at width 6 with 7 outputs."""
    return LeNet(width, outputs, nn.ReLU)


def lenet_smooth(*, width: int = 6, outputs: int = 1) -> LeNet:
    """LeNet with SiLU for ReLU, which gradient-based samplers follow better; as many weights."""
    return LeNet(width, outputs, nn.SiLU)


def lenet_3_smooth(*, width: int = 3, outputs: int = 1) -> LeNet:
    """`lenet_smooth` at half its width, whose posterior chains can cover; 15,673 weights with 5 outputs."""
    return LeNet(width, outputs, nn.SiLU)


SLOPE = 0.2  # of the leaky ReLU, below 0


class VGG(nn.Module):
    """The VGG-like network of Filos et al. 2019, 13 convolutions; 2,657,345 parameters at width 32.

    Activations are ReLU as in the released code, or leaky ReLU 0.2 as in the paper.
    3x3 convolutions: 1 of b channels with stride 2, 2 of b, 2 of 2b, 4 of 4b and 4 of 8b, with 3x3 stride-2 max pooling between
    the groups; mean and maximum of every channel; one linear layer. A mean-field posterior over the kernels has 2,512,159 numbers at
    b = 22, about as many as the network at b = 32: hence the width of the benchmark's MFVI.
    `dropout_sites`: every activation but the last, 12 of 13, as released.
    """

    initialisation = "glorot_uniform"

    def __init__(self, *, width: int = 32, outputs: int = 1, activation: str = "relu") -> None:
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

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        for group in (self.stem, self.group2, self.group3, self.group4):
            x = self.pool(group(x))
        x = self.group5(x)
        logits: Tensor = self.fc(torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1))
        return logits


def _group(inputs: int, channels: int, depth: int, activation: str, stride: int = 1) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(depth):
        before = channels if number else inputs
        act = nn.LeakyReLU(SLOPE, inplace=True) if activation == "leaky_relu" else nn.ReLU(inplace=True)
        layers += [nn.Conv2d(before, channels, 3, stride, padding=1), act]
    return nn.Sequential(*layers)


WORDS, EMBEDDED, FILTERS, KERNEL, POOL, CELLS = 20_000, 128, 64, 5, 4, 128


class Embedding(nn.Module):
    """A vector for every word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(words, size))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, size)."""
        return self.weight[tokens]

    def initialise(self, generator: torch.Generator) -> None:
        """Unit normal."""
        self.weight.normal_(0, 1, generator=generator)


class LSTM(nn.Module):
    """One layer with one bias per gate; the forget gate's argument is raised by 1 (Jozefowicz et al. 2015), as in Haiku.

    PyTorch's own has two biases per gate, which would be another prior.
    """

    def __init__(self, inputs: int, cells: int) -> None:
        super().__init__()
        self.cells = cells
        self.gates = nn.Linear(inputs + cells, 4 * cells)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, inputs) -> the last hidden state (B, cells)."""
        hidden = x.new_zeros(len(x), self.cells)
        cell = hidden
        for step in x.unbind(dim=1):
            given, new, forget, shown = self.gates(torch.cat([step, hidden], dim=1)).chunk(4, dim=1)
            cell = (forget + 1).sigmoid() * cell + given.sigmoid() * new.tanh()
            hidden = shown.sigmoid() * cell.tanh()
        return hidden


@takes("tokens")
class CnnLstm(nn.Module):
    """Embedding, one convolution, pooling, LSTM, one linear layer for 20,000 words; 2,700,098 weights with 2 outputs."""

    def __init__(self, *, outputs: int = 2) -> None:
        super().__init__()
        self.embedding = Embedding(WORDS, EMBEDDED)
        self.conv, self.act = nn.Conv1d(EMBEDDED, FILTERS, KERNEL), nn.ReLU()
        self.lstm = LSTM(FILTERS, CELLS)
        self.fc = nn.Linear(CELLS, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) word numbers -> logits (B, outputs)."""
        x = self.act(self.conv(self.embedding(tokens).transpose(1, 2)))
        logits: Tensor = self.fc(self.lstm(max_pool1d(x, POOL).transpose(1, 2)))
        return logits
