"""Any backbone of timm, named `timm:NAME`; timm is imported when one is asked for, and never by the core."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import derive
from retinabench.models.settings import TIMM


class TimmNetwork(nn.Module):
    """A backbone without its classifier, and one linear layer. Transformers need images of their own size."""

    def __init__(self, backbone: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(width, outputs)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D), the input of the last layer."""
        features: Tensor = self.backbone(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def timm_network(name: str, seed: int, outputs: int = 1) -> TimmNetwork:
    """Return the backbone `name` with fresh weights that depend on `seed` alone.

    timm's own rules initialise the backbone. They draw from PyTorch's global generator, which is therefore seeded for
    this and put back afterwards. The last layer is drawn as in our own networks: N(0, 0.01²).

    Args:
        name: In timm, without our prefix.
        seed: Of the run.
        outputs: Number of logits.

    Raises:
        InputError: timm is not installed or does not know the name.
    """
    timm = _timm()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        try:
            backbone = timm.create_model(name, pretrained=False, num_classes=0)
        except RuntimeError as error:
            raise InputError(
                f"timm has no model '{name}': {error}", hint="timm.list_models() has them."
            ) from None
        # Where a convolution follows the pooling, the classifier reads more or fewer numbers than the last stage has.
        width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
        network = TimmNetwork(backbone, width, outputs)
        nn.init.normal_(network.fc.weight, 0, 0.01)
        nn.init.zeros_(network.fc.bias)
    return network


def _timm() -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise InputError(
            f"a model named '{TIMM}…' needs the package timm, which does not import here ({error})",
            hint="Install it with: pip install timm",
        ) from None
