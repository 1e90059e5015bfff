"""How a network is computed on a GPU: the algorithms of cuDNN, the bits of a product, compiled code.

Training, prediction and `benchmarks/gpu_methods.py` call these functions; on a CPU they do nothing. Channels-last layout
is `models/build.py`'s, fused optimisers are `methods/training/optimizers.py`'s.
"""

from __future__ import annotations

import importlib

import torch
from torch import nn

from retinabench.models.stochastic.drawing import Drawing


def set_arithmetic(precision: str, device: torch.device) -> None:
    """Set how a GPU multiplies, for this process.

    cuDNN times its algorithms for every shape and takes the fastest. Products of float32 are rounded to the 10 bits of TF32
    where `precision` is `tf32`, and nowhere else: PyTorch would do it in convolutions without being asked.

    Args:
        precision: `float32`, `tf32` or `bfloat16`.
        device: Where a network will be computed.
    """
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def supports_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has arithmetic for bfloat16, and is not a CPU, where it is slower than float32."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def draws(model: nn.Module) -> bool:
    """Tell whether a network holds layers that draw noise."""
    return any(isinstance(module, Drawing) for module in model.modules())


def compile_network(model: nn.Module, *, fall_back: bool) -> None:
    """Compile a network in place, unless its layers draw noise.

    A generator breaks the graph of the compiler, so that a network of 54 layers that draw compiles for minutes and gains no
    speed. The network is compiled when it first computes; its parameters keep their names.

    Args:
        model: The network.
        fall_back: Whether code that the compiler fails on is computed as it is; otherwise the failure is raised.
    """
    if draws(model):
        return
    if fall_back:
        importlib.import_module("torch._dynamo").config.suppress_errors = True
    model.compile()
