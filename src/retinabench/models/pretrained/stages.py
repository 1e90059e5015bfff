"""The stages of a network from input to output: which are trained, and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType

from torch import nn

from retinabench.core.errors import InputError
from retinabench.models.last_layer import last_linear
from retinabench.models.networks.timm_adapter import TimmNetwork
from retinabench.models.settings import ModelConfig

NORMS = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


def stages(trunk: nn.Module) -> list[list[nn.Module]]:
    """Return the modules with parameters, stage by stage.

    A stage is a child of the trunk. Where the trunk has one sequence of blocks, as a vision transformer, each block is a stage; the
    items of a list of modules and of a sequence of sequences are stages, too. The four sequences of a ResNet are four stages. A norm
    belongs to the stage before it.

    Args:
        trunk: A network without its last linear layer, or the network itself.
    """
    found: list[list[nn.Module]] = []
    for part in _parts(trunk):
        own = [module for module in part.modules() if any(True for _ in module.parameters(recurse=False))]
        if found and own and all(isinstance(module, NORMS) for module in own):
            found[-1].append(part)
        elif own:
            found.append([part])
    return found


def _parts(trunk: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a trunk, with the items of a sequence of stages in its place."""
    sequences = [child for child in trunk.children() if isinstance(child, nn.Sequential | nn.ModuleList)]
    of_blocks = [one for one in sequences if any(True for item in one for _ in item.children())]
    candidates = of_blocks or sequences
    for child in trunk.children():
        nested = isinstance(child, nn.Sequential) and all(isinstance(item, nn.Sequential) for item in child)
        alone = len(candidates) == 1 and child is candidates[0]
        if nested or alone or isinstance(child, nn.ModuleList):
            yield from child.children()
        else:
            yield child


def fine_tune(network: nn.Module, config: ModelConfig) -> None:
    """Freeze the stages that are not trained, and mark the others with their learning rates, in place.

    A frozen stage stays in evaluation mode, so that its batch statistics do not move. The last linear layer, which is fresh, is of
    no stage, wherever it stands. A parameter's attribute `lr_factor`
    multiplies the learning rate (`methods.training.optimizers`).

    Args:
        network: A network with pretrained weights.
        config: `trained`, `trunk_lr` and `layer_decay`.

    Raises:
        InputError: The network has fewer stages than are to be trained.
    """
    trunk: nn.Module = network.backbone if isinstance(network, TimmNetwork) else network
    name = last_linear(network)
    head = list(network.get_submodule(name).parameters()) if name is not None else []
    of_head = {id(parameter) for parameter in head}
    of_trunk = [stage for stage in stages(trunk) if not _parameters(stage) <= of_head]
    trained = len(of_trunk) if config.trained == "all" else int(config.trained)
    if trained > len(of_trunk):
        raise InputError(f"model.trained={trained}, but '{config.name}' has {len(of_trunk)} stages")
    for depth, stage in enumerate(reversed(of_trunk)):
        for module in stage:
            if depth >= trained:
                freeze(module)
            for parameter in module.parameters():
                parameter.lr_factor = config.trunk_lr * config.layer_decay**depth  # type: ignore[attr-defined]
    for parameter in head:  # which a user's network may keep in a stage with other layers
        parameter.requires_grad_(True)
        parameter.lr_factor = 1.0  # type: ignore[attr-defined]
    held = of_head.union(*map(_parameters, of_trunk))
    for parameter in trunk.parameters(recurse=False):  # a class token, the embedding of positions
        if id(parameter) not in held:
            parameter.requires_grad_(config.trained == "all")
            parameter.lr_factor = config.trunk_lr * config.layer_decay ** len(of_trunk)  # type: ignore[attr-defined]


def _parameters(stage: list[nn.Module]) -> set[int]:
    return {id(parameter) for module in stage for parameter in module.parameters()}


def freeze(module: nn.Module) -> None:
    """Keep the parameters and the running statistics of a module as they are, whatever mode its network is set to."""
    module.requires_grad_(False)
    module.eval()
    module.train = MethodType(_stay, module)  # type: ignore[method-assign]


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    return module
