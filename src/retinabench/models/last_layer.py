"""Any network as a trunk and its last linear layer: the shared ground of the last-layer methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.models.foreign import MADE

HINT = "Choose a method that is not about the last layer."


class Placeholder(nn.Identity):
    """What stands where the last layer was; it gives `probe` in place of logits while the network is checked."""

    def __init__(self, outputs: int, name: str) -> None:
        super().__init__()
        self.outputs, self.name, self.checked = outputs, name, False
        self.probe: Tensor | None = None

    def forward(self, features: Tensor) -> Tensor:
        """Return the features (B, D), or the probe (B, C)."""
        return features if self.probe is None else self.probe


class SplitNetwork(nn.Module):
    """f(x) = head(trunk(x)), trunk: (B, 3, H, W) -> features (B, D), head: features -> logits (B, C)."""

    def __init__(self, trunk: nn.Module, head: nn.Module, width: int, name: str) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head
        self.width, self.name = width, name

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the last layer, (B, D), float32. Shapes: `images` (B, 3, H, W)."""
        features: Tensor = self.trunk(images)
        if features.shape != (len(images), self.width):
            raise InputError(
                f"the network's logits are not the output of its last linear layer '{self.name}': without that "
                f"layer it gives {tuple(features.shape)}, not {(len(images), self.width)}",
                hint=HINT,
            )
        return features.float()

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, C)."""
        logits: Tensor = self.head(self.features(images))
        return logits


def last_linear(model: nn.Module) -> str | None:
    """Return the name of the linear layer that gives the logits, None without one: the last, or in a user's network, which defines its layers in any order, the marked one."""
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    marked = [name for name, module in linear.items() if getattr(module, "gives_logits", False)]
    return next(reversed(marked or list(linear)), None)


def split_last_layer(model: nn.Module) -> SplitNetwork:
    """Take the last `nn.Linear` out of `model`, in place: an identity stands where it was."""
    name = last_linear(model)
    if name is None:
        raise InputError(f"the network {type(model).__name__} has no linear layer to be its last one", hint=HINT)
    head = model.get_submodule(name)
    assert isinstance(head, nn.Linear)
    if not name:
        return SplitNetwork(nn.Identity(), head, head.in_features, "the network itself")
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, Placeholder(head.out_features, name))
    if getattr(model, MADE, False):
        model.register_forward_pre_hook(_check_once)
    return SplitNetwork(model, head, head.in_features, name)


def _check_once(model: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Refuse a trunk that does not pass on what stands in place of its last layer: at the first batch, whose size fits."""
    place = next(module for module in model.modules() if isinstance(module, Placeholder))
    if place.checked or torch.compiler.is_compiling():
        return
    place.checked = True
    images = inputs[0]  # all of them: a network of several members takes no other number
    probe = torch.linspace(-9.3, 8.7, len(images) * place.outputs, device=images.device).reshape(len(images), -1)
    place.probe = probe
    try:
        with _undisturbed(model, images.device):
            found = model(images)
    finally:
        place.probe = None
    # The probe depends on no parameter: a result that does would become another one as soon as it is trained.
    if found.shape == probe.shape and (found.requires_grad or not torch.equal(found.float(), probe)):
        problem = (
            f"the network's logits are not the output of its last linear layer '{place.name}': something follows it"
        )
        raise InputError(problem, hint=HINT)


@contextmanager
def _undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Compute in evaluation mode, and leave modes, buffers and PyTorch's random numbers as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for module, _ in modes:
                module.training = False
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def with_bias(features: Tensor) -> Tensor:
    """(B, D) -> (B, D + 1): a feature that is always 1."""
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
