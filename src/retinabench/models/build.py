"""Construction of networks from their settings, their initial weights, and how a GPU computes them."""

from __future__ import annotations

import importlib
import math

import torch
from torch import nn

from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.core.random_streams import torch_generator
from retinabench.models.foreign import check_outputs, own_network, timm_network
from retinabench.models.last_layer import SplitNetwork, split_last_layer
from retinabench.models.networks.small import Head
from retinabench.models.pretrained import fine_tune, load_pretrained
from retinabench.models.registry import MODELS, has_choice
from retinabench.models.settings import TIMM, ModelConfig
from retinabench.models.stochastic.drawing import Drawing


def build_model(
    config: ModelConfig,
    seed: int,
    outputs: int = 1,
    *,
    pretrained: bool = True,
    progress: Progress = QUIET,
    columns: int | None = None,
) -> nn.Module:
    """Build a network for images in channels-last layout, the faster one on every device, or for features or the `columns` of a table."""
    if config.trained == "head":
        if config.trunk_lr != 1 or config.layer_decay != 1:
            progress.say("note: model.trunk_lr and model.layer_decay have no effect: the trunk is not trained")
        head = Head(feature_width(config), outputs, config.hidden)
        initialise(head, torch_generator("cpu", seed, "weights"))
        return head
    model = _network(config, seed, outputs, columns)
    if config.weights is not None:
        if pretrained:
            progress.say(f"note: {load_pretrained(model, config)}")
        fine_tune(model, config)
    if config.own:
        return model
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # torch's stubs


def build_trunk(config: ModelConfig, *, pretrained: bool = True, progress: Progress = QUIET) -> SplitNetwork:
    """Build the pretrained trunk of a network whose head is trained alone; `features` is what it is for."""
    model = _network(config, seed=0, outputs=1)
    if pretrained:
        progress.say(f"note: {load_pretrained(model, config)}")
    if not config.own:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return split_last_layer(model).eval().requires_grad_(False)


def feature_width(config: ModelConfig) -> int:
    return split_last_layer(shapes(config)).width


def parameters_of(config: ModelConfig, columns: int | None = None) -> int:
    """Return the number of parameters that `build_model` would make with one output, without memory for them."""
    if config.trained == "head":
        with torch.device("meta"):
            model: nn.Module = Head(feature_width(config), 1, config.hidden)
    else:
        model = shapes(config, columns)
    return sum(parameter.numel() for parameter in model.parameters())


def parameters_of_trunk(config: ModelConfig) -> int:
    """Return the number of parameters that `build_trunk` would make, without memory for them."""
    return sum(parameter.numel() for parameter in split_last_layer(shapes(config)).trunk.parameters())


def check_size(config: ModelConfig, size: int) -> None:
    """Refuse a network from elsewhere that does not take images of a size, or gives something else than one logit."""
    if config.own or config.name.startswith(TIMM):
        hint = "Prepare the images at the size that it takes if that is another one, otherwise mend its forward."
        check_outputs(shapes(config), config.name, torch.zeros(2, 3, size, size), hint)


def shapes(config: ModelConfig, columns: int | None = None) -> nn.Module:
    """The network with one output and without values, which only a user's function has."""
    if config.own:
        return own_network(config.name, seed=0, outputs=1)
    with torch.device("meta"):
        if config.name.startswith(TIMM):
            return timm_network(config.name.removeprefix(TIMM), seed=0, size=config.size)
        return _registered_network(config, 1, columns)


def check_takes_tables(config: ModelConfig) -> None:
    if not has_choice(config.name, "columns"):
        hint = "Name --model mlp or linear, or a preset such as --config table/dropout."
        raise InputError(f"'{config.name}' reads images, and the data are a table", hint=hint)


def _network(config: ModelConfig, seed: int, outputs: int, columns: int | None = None) -> nn.Module:
    if config.name.startswith(TIMM):
        return timm_network(config.name.removeprefix(TIMM), seed, outputs, config.size)
    if config.own:
        return own_network(config.name, seed, outputs)
    model = _registered_network(config, outputs, columns)
    initialise(model, torch_generator("cpu", seed, "weights"))
    return model


def _registered_network(config: ModelConfig, outputs: int, columns: int | None = None) -> nn.Module:
    named = ("width", "stem", "activation", "pool")
    choices = {name: getattr(config, name) for name in named if has_choice(config.name, name)}
    choices |= {} if columns is None else {"columns": columns}
    network: nn.Module = MODELS[config.name](outputs=outputs, **choices)
    return network


def build_published(name: str, seed: int, outputs: int) -> nn.Module:
    """Build a network of `MODELS`, whatever it takes, at its published width, and return it."""
    model: nn.Module = MODELS.find(name)(outputs=outputs)
    initialise(model, torch_generator("cpu", seed, "weights"))
    return model


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Draw fresh weights in place: He normal layers (fan-in), the last linear one N(0, 0.01²), unit norms, no biases.

    A layer with a method ``initialise(generator)`` draws its own. A network whose attribute ``initialisation`` is
    ``"glorot_uniform"`` gets U(±sqrt(6 / (fan-in + fan-out))) in all layers.

    References:
        He et al. 2015, "Delving deep into rectifiers"; Glorot & Bengio 2010.
    """
    glorot = getattr(model, "initialisation", "") == "glorot_uniform"
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1:]
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Linear)):
            weight, field = module.weight, module.weight[0, 0].numel()
            fan_in, fan_out = weight.shape[1] * field, weight.shape[0] * field
            if glorot:
                bound = math.sqrt(6 / (fan_in + fan_out))
                weight.uniform_(-bound, bound, generator=generator)
            else:
                weight.normal_(0, 0.01 if module in last else math.sqrt(2 / fan_in), generator=generator)
        elif callable(own := getattr(module, "initialise", None)):
            own(generator)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.weight.fill_(1)
        elif list(module.parameters(recurse=False)):
            raise TypeError(f"no rule to initialise {name}: {type(module).__name__}")
        if getattr(module, "bias", None) is not None:
            module.bias.zero_()


def set_arithmetic(precision: str, device: torch.device) -> None:
    """Set how a GPU multiplies, for this process.

    cuDNN times its algorithms for every shape and takes the fastest. Products of float32 are rounded to the 10 bits of TF32
    where `precision` is `tf32`, and nowhere else: PyTorch would do it in convolutions without being asked.
    """
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def supports_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has arithmetic for bfloat16, and is not a CPU, where it is slower than float32."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def draws(model: nn.Module) -> bool:
    return any(isinstance(module, Drawing) for module in model.modules())


def compile_network(model: nn.Module, *, fall_back: bool) -> None:
    """Compile a network in place when it first computes, unless its layers draw: generators break the graph of the compiler, which gains nothing."""
    if not draws(model):
        if fall_back:
            importlib.import_module("torch._dynamo").config.suppress_errors = True
        model.compile()
