"""The contract of a method, in one screenful.

A method is a module with three names:

    Config                                             its hyper-parameters, a frozen `config.Method`
    build(model, run) -> Posterior                     the posterior around a fresh network: layers swapped, untrained
    fit(model, batches, run, journal) -> Posterior     build and train; continue from the journal where it left off

A finished posterior comes back by `build` and `restore`.

and one line in `METHODS`. Letters: S posterior samples, B batch, C classes (2: not referable, referable).
Randomness: every draw comes from a stream of `seeds.py` named after its purpose, derived from `run.seed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from retinabench.config import Method as MethodConfig
    from retinabench.config import Run
    from retinabench.data.loader import Batches
    from retinabench.methods.journal import Journal

State = dict[str, Tensor]


class Posterior(Protocol):
    """What a method has learnt."""

    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images (B, 3, H, W); a method without noise returns S = 1."""

    def state(self) -> State:
        """Return every tensor that `predict` needs, detached and in host memory."""

    def restore(self, state: State) -> None:
        """Take over what `state` of a posterior of the same build returned."""


class NetworkPosterior(Posterior, Protocol):
    """A posterior around one network that gradient descent trains."""

    model: nn.Module


class Method(Protocol):
    """A module of `methods/`."""

    @property
    def Config(self) -> type[MethodConfig]:  # noqa: N802
        """The class of its hyper-parameters."""

    def build(self, model: nn.Module, run: Run) -> Posterior:
        """Return the untrained posterior; `model` is changed in place."""

    def fit(self, model: nn.Module, batches: Batches, run: Run, journal: Journal) -> Posterior:
        """Build the posterior and train it on `batches`."""


def class_probabilities(logits: Tensor) -> Tensor:
    """Turn logits into probabilities: (B, 1) by the sigmoid into (B, 2), (B, C) by the softmax. Always float32."""
    logits = logits.float()
    if logits.shape[1] > 1:
        return logits.softmax(dim=1)
    referable = logits.sigmoid()
    return torch.cat([1 - referable, referable], dim=1)


def precision(run: Run, device: torch.device) -> torch.autocast:
    """Return the context in which the run's networks compute; losses and probabilities stay in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=run.optimizer.precision == "bfloat16")


def network_state(model: nn.Module) -> State:
    """Return a detached copy of all tensors of `model` in host memory."""
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def as_config(run: Run, kind: type[Any]) -> Any:
    """Return the run's method configuration, checked to be of the method's own class."""
    if not isinstance(run.method, kind):
        raise TypeError(f"a run of the method '{run.method.name}' came to {kind.__module__}")
    return run.method
