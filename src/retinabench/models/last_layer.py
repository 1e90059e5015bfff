"""Any network as a trunk and its last linear layer: the shared ground of the last-layer methods."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError


class SplitNetwork(nn.Module):
    """f(x) = head(trunk(x)), trunk: (B, 3, H, W) -> features (B, D), head: features -> logits (B, C)."""

    def __init__(self, trunk: nn.Module, head: nn.Module, width: int, name: str) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head
        self.width, self.name = width, name

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the last layer, (B, D), float32.

        Args:
            images: (B, 3, H, W).

        Raises:
            InputError: The layer that was taken for the last one is followed by others.
        """
        features: Tensor = self.trunk(images)
        if features.shape != (len(images), self.width):
            raise InputError(
                f"the network's logits are not the output of its last linear layer '{self.name}': without that "
                f"layer it gives {tuple(features.shape)}, not {(len(images), self.width)}",
                hint="Choose a method that is not about the last layer.",
            )
        return features.float()

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, C)."""
        logits: Tensor = self.head(self.features(images))
        return logits


def last_linear(model: nn.Module) -> str | None:
    """Return the name of the linear layer that gives the logits: the marked one, else the last; None where there is none.

    A user's network may define its layers in any order; `own_network` marks the one whose outputs are the logits.
    """
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    marked = [(name, module) for name, module in linear if getattr(module, "gives_logits", False)]
    found: list[str] = [name for name, _ in marked or linear]
    return found[-1] if found else None


def split_last_layer(model: nn.Module) -> SplitNetwork:
    """Take the last `nn.Linear` out of `model`, in place: an identity stands where it was.

    Args:
        model: A network with a linear layer.

    Returns:
        The network without that layer, and the layer.

    Raises:
        InputError: There is none.
    """
    name = last_linear(model)
    if name is None:
        raise InputError(
            f"the network {type(model).__name__} has no linear layer to be its last one",
            hint="Choose a method that is not about the last layer.",
        )
    head = model.get_submodule(name)
    assert isinstance(head, nn.Linear)
    if not name:
        return SplitNetwork(nn.Identity(), head, head.in_features, "the network itself")
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    return SplitNetwork(model, head, head.in_features, name)


def with_bias(features: Tensor) -> Tensor:
    """(B, D) -> (B, D + 1): a feature that is always 1."""
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
