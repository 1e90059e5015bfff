"""Networks from elsewhere: a user's function `package.module:function`, and any backbone of timm (`timm:NAME`).

A user's function is imported where a command, a configuration or a caller names it. What is read from the folder of a run or
of an exported model never imports it (`named_network`), so that no code of an untrusted folder runs. timm is imported when a
backbone of it is asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from retinabench.core.errors import InputError
from retinabench.core.random_streams import derive
from retinabench.core.registry import import_location
from retinabench.data.loader import is_out_of_memory, out_of_memory
from retinabench.models.settings import TIMM

MADE = "_made_for_a_run"  # marks a network, so that a function that returns the same one again is found out


class SourceFile(NamedTuple):
    """The file that a function is defined in, and its SHA-256."""

    file: str
    sha256: str


def own_network(name: str, seed: int, outputs: int) -> nn.Module:
    return made_by(_function(name), name, seed, outputs, source_of(name).file or None)


def made_by(function: Callable[..., Any], name: str, seed: int, outputs: int, file: str | None = None) -> nn.Module:
    """Call a user's function and return its network; PyTorch's global generator is seeded for the call and put back, so that the weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        try:
            network = function(outputs=outputs) if _takes_outputs(function) else function()
        except (Exception, SystemExit) as error:  # foreign code raises what it likes
            raise InputError(f"'{name}' raises {_line(error)}", file=file) from error
    if problem := _problem(network):
        raise InputError(f"'{name}' {problem}", file=file)
    setattr(network, MADE, True)
    for layer in [m for m in network.modules() if isinstance(m, nn.Linear) and m.out_features == outputs][-1:]:
        layer.gives_logits = True  # type: ignore[assignment]  # see `last_layer.last_linear`
    network.register_forward_pre_hook(  # images come in channels-last layout, of which a user's `view` would fail
        lambda module, inputs: tuple(one.contiguous() if isinstance(one, Tensor) else one for one in inputs)
    )
    return network  # type: ignore[no-any-return]


def check_outputs(network: nn.Module, name: str, inputs: Tensor, hint: str, outputs: int = 1) -> None:
    """Refuse a network that does not take such inputs (B, ...), or gives something else than `outputs` logits."""
    device = next(network.parameters()).device
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            found = network.eval()(inputs.to(device))
    except (Exception, SystemExit) as error:  # foreign code raises what it likes
        if is_out_of_memory(error):
            raise out_of_memory(f"'{name}' with inputs of shape {tuple(inputs.shape)}", device) from None
        for kind in {p.dtype for p in network.parameters()} - {torch.float32}:
            hint = f"It has parameters of {kind}, and images are float32: return network.float()."
        square = inputs.ndim == 4 and inputs.shape[1] == 3 and inputs.shape[2] == inputs.shape[3]
        what = f"images of {inputs.shape[3]} px" if square else f"inputs of shape {tuple(inputs.shape)}"
        raise InputError(f"'{name}' does not take {what} ({_line(error)})", hint=hint) from error
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if shape != (wanted := (len(inputs), outputs)):
        problem = f"'{name}' gives {shape} for {len(inputs)} images, not logits of shape {wanted}"
        concepts = "A function of yours gets the number of concepts as `outputs`." if outputs > 1 else None
        raise InputError(problem, hint=concepts)


def named_network(stated: str, given: str | None, folder: Path, *, own: bool) -> str:
    """Return the name of the network of a folder, whose code runs only where the caller names it."""
    if own and given is None:
        hint = f"If you trust that code and it can be imported here, say so: --model {stated}"
        raise InputError(f"holds a model of '{stated}', whose code is not part of it", file=folder, hint=hint)
    if given is not None and not own:
        problem = f"holds a model of '{stated}', which needs no other code"
        raise InputError(problem, file=folder, hint="Leave out --model.")
    return given or stated


def source_of(name: str) -> SourceFile:
    """Return the file of a user's function; empty where there is none to be read."""
    function = _function(name)
    with contextlib.suppress(TypeError, OSError):
        file = Path(str(inspect.getsourcefile(inspect.unwrap(function)))).resolve()
        return SourceFile(str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    return SourceFile("", "")


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.append(here)  # an installed command does not look where it is called
    found = import_location(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"has no function '{attribute}'", file=getattr(found, "__file__", module))
        found = getattr(found, part)
    if isinstance(found, nn.Module) or not callable(found):
        raise InputError(f"'{name}' is a {type(found).__name__}, not a function that returns a network")
    return found  # type: ignore[no-any-return]


def _takes_outputs(function: Callable[..., Any]) -> bool:
    with contextlib.suppress(TypeError, ValueError):  # a callable without a signature
        parameters = inspect.signature(function).parameters.values()
        return any(p.name == "outputs" or p.kind is p.VAR_KEYWORD for p in parameters)
    return False


def _problem(network: object) -> str:
    """What is wrong with the result of a user's function; empty where nothing is."""
    if not isinstance(network, nn.Module):
        return f"returns a {type(network).__name__}, not an nn.Module"
    if getattr(network, MADE, False):
        return "returns the same network again; every run needs a new one"
    if any(isinstance(p, UninitializedParameter) for p in network.parameters()):
        return "has lazy layers; state their numbers of inputs"
    if not any(p.requires_grad for p in network.parameters()):
        return "has no parameters to train"
    return ""


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class TimmNetwork(nn.Module):
    """A backbone without its classifier, and one linear layer. Transformers need images of their own size."""

    before_head = "pooled"  # a module that changes nothing, for dropout (`stochastic/dropout.py`)

    def __init__(self, backbone: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.backbone, self.pooled = backbone, nn.Identity()
        self.fc = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pooled(self.backbone(x)))
        return logits


def timm_network(name: str, seed: int, outputs: int = 1, size: int | None = None) -> TimmNetwork:
    """Return the backbone `name`, made for images of `size` px where it needs one, initialised by timm's own rules under a seed; the last layer is N(0, 0.01²) as in ours."""
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        problem = f"a model named '{TIMM}…' needs the package timm, which does not import here ({error})"
        raise InputError(problem, hint="Install it with: pip install timm") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        try:
            sized = {} if size is None else {"img_size": size}
            backbone = timm.create_model(name, pretrained=False, num_classes=0, **sized)
        except TypeError as error:  # of a network for images of any size
            raise InputError(f"timm's '{name}' cannot be made for images of {size} px ({_line(error)})") from None
        except RuntimeError as error:
            raise InputError(f"timm has no model '{name}': {error}", hint="timm.list_models() has them.") from None
        # Where a convolution follows the pooling, the classifier reads more or fewer numbers than the last stage has.
        width = getattr(backbone, "head_hidden_size", None) or backbone.num_features
        network = TimmNetwork(backbone, width, outputs)
        nn.init.normal_(network.fc.weight, 0, 0.01)
        nn.init.zeros_(network.fc.bias)
    return network
