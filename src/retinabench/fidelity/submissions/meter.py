"""The counted budget: rows of training inputs that pass the network, or that a method computes with on its own.

The network counts what passes it, with gradients or without. The training inputs that a method is handed count too: a product,
reduction or function of them outside the network is one evaluation per row. To select, join, reshape, copy and scale them is free.
A matrix product is worth its outputs by the widest layer, so that the weights of many chains in one product count one by one.
What is not seen: work on inputs that were copied to NumPy (the copy counts once), and on outputs of the network that were kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from retinabench.core.errors import WorkError
from retinabench.data.loader import ArraySource, Batches
from retinabench.fidelity.targets.density import Density

EXAMPLES, SECONDS = "gradient_examples", "gradient_seconds"  # the names in a checkpoint's `counts`
JOINS = re.compile("cat|[hv]?stack|pad")
FREE = re.compile(
    f"{JOINS.pattern}|__getitem__|__get__|split|chunk|narrow|index_select|reshape|view|flatten|unflatten|squeeze|unsqueeze|expand|"
    "expand_as|repeat|permute|transpose|t|contiguous|clone|detach|to|cpu|cuda|float|double|half|type|requires_grad_|(__r?)?(add|sub|mul|div)_*"
    "|(__r?)?truediv__"
)
NEW = re.compile("new_.*|.*_like")  # tensors without anything of the inputs
PRODUCTS = {"linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "tensordot"}


@dataclass
class GradientMeter:
    """Counts the training examples of each evaluation of the likelihood until it is stopped for the predictions."""

    examples: int
    limit: float | None
    counts: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    _last: float | None = None
    _units: int | None = None  # of the widest layer; None where layers are no matrices

    @property
    def used(self) -> float:
        """Gradient evaluations per training example so far."""
        return self.counts.get(EXAMPLES, 0) / self.examples

    def watch(self, network: nn.Module) -> nn.Module:
        """Count what passes `network` from now on, also through wrappers; return it."""
        parameters = list(network.parameters())
        if all(p.ndim <= 2 for p in parameters):
            self._units = max(len(p) for p in parameters)
        network.register_forward_pre_hook(lambda _, inputs: tuple(_plain(x) for x in inputs))
        network.register_forward_hook(lambda _, inputs, output: self.count(_rows(output)))
        return network

    def handed_out(self, batches: Batches) -> Batches:
        """Return batches whose inputs count what is computed with them."""
        source = batches.source
        assert isinstance(source, ArraySource)
        inputs = _watched(source.inputs, self, source.inputs.numel() / len(source.inputs))
        return replace(batches, source=replace(source, inputs=inputs))

    def count(self, rows: float) -> None:
        if self.stopped:
            return
        now = time.perf_counter()
        self.counts[EXAMPLES] = self.counts.get(EXAMPLES, 0) + rows
        self.counts[SECONDS] = self.counts.get(SECONDS, 0) + (now - (self._last or now))
        self._last = now
        if self.limit is not None and self.used > self.limit + 1e-9:
            raise WorkError(
                f"the method took more than the {self.limit:g} gradient evaluations per training example that it "
                "planned; its `gradients_per_example` is wrong"
            )

    def computed(self, name: str, rows: float, output: Any) -> None:
        """Count a function of some rows of the inputs outside the network; what gives no numbers, such as a shape, is free."""
        if not isinstance(output, np.ndarray | list | Tensor):
            return
        if isinstance(output, Tensor):
            rows *= _physical(output).numel() / max(1, output.numel())
            if name in PRODUCTS and self._units:
                rows = max(rows, _physical(output).numel() / self._units)
        self.count(round(rows))


@dataclass(frozen=True, eq=False)
class MeteredDensity:
    """A density whose evaluations, of all training points by each of K chains, a meter counts."""

    density: Density
    meter: GradientMeter

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        self.meter.count(len(weights) * self.meter.examples)
        return self.density(weights)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> (K, P)."""
        self.meter.count(len(weights) * self.meter.examples)
        return self.density.gradient(weights)


class Examples(Tensor):
    """Training inputs, or what was cut from them, that tell a meter what is computed with them."""

    meter: GradientMeter
    width: float  # numbers per example

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            output = func(*args, **(kwargs or {}))
            own = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Examples)]
            rows = sum(x.numel() / x.width for x in own)
            if NEW.fullmatch(name := func.__name__):
                return output
            if not FREE.fullmatch(name):
                own[0].meter.computed(name, rows, output)
                return output
            parts = output if isinstance(output, tuple) else (output,)
            if not all(isinstance(part, Tensor) and part.is_floating_point() and part.numel() for part in parts):
                return output
            width = output.numel() / rows if JOINS.fullmatch(name) else own[0].width
            wrapped = tuple(_watched(part, own[0].meter, width) for part in parts)
            return wrapped if isinstance(output, tuple) else wrapped[0]


def _watched(tensor: Tensor, meter: GradientMeter, width: float) -> Tensor:
    found = tensor.as_subclass(Examples)
    found.meter, found.width = meter, width
    return found


def _plain(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, Examples) else value


def _rows(output: Tensor) -> int:
    """Return the rows (B, ...) of an output, times the copies of each that `torch.func.vmap` computes at once."""
    per_row = max(1, output.numel() // max(1, len(output)))
    return _physical(output).numel() // per_row


def _physical(output: Tensor) -> Tensor:
    """Return the tensor below the wrappers of `torch.func`."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(output):
        output = functorch.get_unwrapped(output)
    return output
