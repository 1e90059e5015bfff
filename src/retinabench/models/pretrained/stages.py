"""The stages of a network from input to output: which are trained, and how fast."""

from __future__ import annotations

from types import MethodType

from torch import nn

from retinabench.core.errors import InputError
from retinabench.models.last_layer import last_linear
from retinabench.models.networks.timm_adapter import TimmNetwork
from retinabench.models.settings import ModelConfig

NORMS = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


def stages(trunk: nn.Module) -> list[list[nn.Module]]:
    """Return the modules with parameters, stage by stage.

    A stage is a child of the trunk; a sequence of blocks counts as many stages as it has blocks; a norm belongs to the
    stage before it.

    Args:
        trunk: A network without its last linear layer, or the network itself.
    """
    found: list[list[nn.Module]] = []
    for child in trunk.children():
        if not any(True for _ in child.parameters()):
            continue
        blocks = list(child.children())
        if isinstance(child, nn.ModuleList) or (
            isinstance(child, nn.Sequential) and all(isinstance(block, nn.Sequential) for block in blocks)
        ):
            found += [[block] for block in blocks]
        elif isinstance(child, NORMS) and found:
            found[-1].append(child)
        else:
            found.append([child])
    return found


def fine_tune(network: nn.Module, config: ModelConfig) -> None:
    """Freeze the stages that are not trained, and mark the others with their learning rates, in place.

    A frozen stage stays in evaluation mode, so that its batch statistics do not move. A parameter's attribute `lr_factor`
    multiplies the learning rate (`methods.training.optimizers`).

    Args:
        network: A network with pretrained weights.
        config: `trained`, `trunk_lr` and `layer_decay`.

    Raises:
        InputError: The network has fewer stages than are to be trained.
    """
    trunk: nn.Module = network.backbone if isinstance(network, TimmNetwork) else network
    head = last_linear(network)
    of_trunk = [stage for stage in stages(trunk) if head is None or stage != [network.get_submodule(head)]]
    trained = len(of_trunk) if config.trained == "all" else int(config.trained)
    if trained > len(of_trunk):
        raise InputError(f"model.trained={trained}, but '{config.name}' has {len(of_trunk)} stages")
    for depth, stage in enumerate(reversed(of_trunk)):
        for module in stage:
            if depth >= trained:
                freeze(module)
            for parameter in module.parameters():
                parameter.lr_factor = config.trunk_lr * config.layer_decay**depth  # type: ignore[attr-defined]
    held = {id(parameter) for stage in of_trunk for module in stage for parameter in module.parameters()}
    for parameter in trunk.parameters(recurse=False):  # a class token, the embedding of positions
        if id(parameter) not in held:
            parameter.requires_grad_(config.trained == "all")
            parameter.lr_factor = config.trunk_lr * config.layer_decay ** len(of_trunk)  # type: ignore[attr-defined]


def freeze(module: nn.Module) -> None:
    """Keep the parameters and the running statistics of a module as they are, whatever mode its network is set to."""
    module.requires_grad_(False)
    module.eval()
    module.train = MethodType(_stay, module)  # type: ignore[method-assign]


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    return module
