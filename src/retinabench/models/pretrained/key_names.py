"""The names that other packages give to the parameters of a network that is the same as ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from torch import nn

from retinabench.models.pretrained.checkpoint import State

STEM = "_conv_stem.weight"  # the first layer in the package efficientnet-lite-pytorch


def named_as(trunk: nn.Module, state: State) -> State:
    """Return the tensors under the names of the trunk.

    Other layouts of the same network are known by their keys. A wrapper's prefix, such as ``module.`` or ``teacher.backbone.``, is the
    one without which most names of the trunk are found.

    Args:
        trunk: The network that takes them.
        state: Tensors by their names in the checkpoint.
    """
    renamings: list[Callable[[nn.Module, State], State]] = [
        lambda _, tensors: tensors,
        _from_efficientnet_pytorch,
        _with_norm_before_the_head,
    ]
    own = set(trunk.state_dict())
    state = _without_prefix(own, state)
    return max((rename(trunk, state) for rename in renamings), key=lambda renamed: len(own & set(renamed)))


def _without_prefix(own: set[str], state: State) -> State:
    known = own | {STEM}
    prefixes = Counter(
        name[:start]
        for name in state
        for start in (0, *(dot.end() for dot in re.finditer(r"\.", name)))
        if name[start:] in known
    )
    if not prefixes:
        return state
    ((prefix, _),) = prefixes.most_common(1)
    inner = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return {name: value for name, value in state.items() if not name.startswith(prefix)} | inner


def _from_efficientnet_pytorch(trunk: nn.Module, state: State) -> State:
    """`_blocks.5._expand_conv.weight` and its like, as the package efficientnet-lite-pytorch names them."""
    blocks = getattr(trunk, "blocks", None)
    if STEM not in state or not isinstance(blocks, nn.Sequential):
        return state
    place = [f"blocks.{stage}.{block}" for stage, some in enumerate(blocks) for block in range(len(some))]  # type: ignore[arg-type]
    outer = {
        "_conv_stem": "conv_stem",
        "_bn0": "bn1",
        "_conv_head": "conv_head",
        "_bn1": "bn2",
        "_fc": "classifier",
    }
    first = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
    later = {
        "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2", "_project_conv": "conv_pwl",
        "_bn2": "bn3",
    }  # fmt: skip
    renamed = {}
    for name, value in state.items():
        if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
            number, layer, kind = int(match[1]), match[2], match[3]
            inner = first if number == 0 else later
            if number < len(place) and layer in inner:
                renamed[f"{place[number]}.{inner[layer]}.{kind}"] = value
        else:
            layer, _, kind = name.partition(".")
            renamed[f"{outer.get(layer, layer)}.{kind}"] = value
    return renamed


def _with_norm_before_the_head(trunk: nn.Module, state: State) -> State:
    """The last norm of a vision transformer: `norm` of class tokens, `fc_norm` of averaged ones, as in RETFound."""
    own = trunk.state_dict()
    if "norm.weight" in own and "norm.weight" not in state:
        return {re.sub(r"^fc_norm\.", "norm.", name): value for name, value in state.items()}
    if "fc_norm.weight" in own and "fc_norm.weight" not in state:
        return {re.sub(r"^norm\.", "fc_norm.", name): value for name, value in state.items()}
    return state
