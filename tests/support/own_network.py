"""A user's own network, as a stranger may have written it, and functions that return something else."""

import torch
from torch import nn


class Eye(nn.Module):
    """Convolutions with a head that is defined first and used last, names of layers that mean something else here, and a `view`."""

    def __init__(self, outputs, size):
        super().__init__()
        self.answer = nn.Linear(16, outputs)
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(4)
        )
        self.weight = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.backbone = nn.ModuleDict({"gate": nn.Linear(8 * (size // 4) ** 2, 16)})
        self.act, self.forget = nn.GELU(), nn.Dropout(0.1)

    def forward(self, picture):
        x = self.act(self.weight(self.features(picture)))
        x = self.act(self.backbone["gate"](x.view(len(x), -1)))
        return self.answer(self.forget(x))


def make(outputs=1):
    return Eye(outputs, size=16)


class Pooled(nn.Sequential):
    """A network of images of any size; its class is the function."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 1)
        )


def two_logits():
    return Eye(2, size=16)


def a_number():
    return 7


def broken():
    raise RuntimeError("no weights\nhere")


def leaves():
    raise SystemExit(3)


def double():
    return Pooled().double()


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(1))


def empty():
    return nn.Flatten()


SAME = Pooled()


def same():
    return SAME


def without_activations():
    """Return a network with nowhere to put dropout."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1))


def without_linear():
    return nn.Sequential(nn.Conv2d(3, 1, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Doubled(nn.Module):
    """A network whose logits are not the output of its linear layer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3 * 16 * 16, 1)

    def forward(self, x):
        return torch.tanh(self.linear(x.flatten(1)).squeeze(1))[:, None]
