"""Posteriors: what a method has learnt, and how it is saved and restored."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from retinabench.methods.settings import TrainingRun
    from retinabench.methods.training.likelihood import Likelihood

State = dict[str, Tensor]
BESIDE = "beside/"  # no name of a parameter holds a slash


class Posterior(Protocol):
    """What a method has learnt."""

    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images (B, 3, H, W); a method without noise returns S = 1.

        Under a Gaussian likelihood it returns mean and standard deviation, (S, B, 2).

        Args:
            images: (B, 3, H, W).
            samples: Number S of samples; fewer are returned where there are no more.
            generator: Source of the draws. A posterior over weights draws from the beginning of its stream (`rewound`), one
                over units, which every image draws on its own, from its position.
        """

    def state(self) -> State:
        """Return every tensor that `predict` needs, detached and in host memory."""

    def restore(self, state: State) -> None:
        """Take over what `state` of a posterior of the same build returned."""


@runtime_checkable
class UncertaintyPosterior(Posterior, Protocol):
    """A posterior with an uncertainty of its own beside its probabilities.

    It becomes the column `uncertainty` of the predictions, which orders the referral unless another is asked for.
    """

    def uncertainty(self, images: Tensor) -> Tensor:
        """Return the uncertainty (B,) of images (B, 3, H, W), finite, the largest for what is referred first."""


class NetworkPosterior(Posterior, Protocol):
    """A posterior around one network that gradient descent trains."""

    @property
    def model(self) -> nn.Module:
        """The network."""

    @property
    def likelihood(self) -> Likelihood:
        """What its outputs mean."""


class NetworkOnly:
    """State of a posterior that is all in the tensors of its network."""

    model: nn.Module

    def state(self) -> State:
        return network_state(self.model)

    def restore(self, state: State) -> None:
        self.model.load_state_dict(state)


def fingerprint(state: State) -> str:
    """Return 16 digits of the SHA-256 of a state: names, types, shapes and values of its tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def rewound(generator: torch.Generator) -> torch.Generator:
    """Return a generator at the beginning of the stream of `generator`, whose own position stays where it is.

    A posterior over weights draws from it: sample s is then the same function for every image, however the images are
    cut into batches, and each sample of one run can be followed through the file.
    """
    return torch.Generator(generator.device).manual_seed(generator.initial_seed())


def sample_seeds(samples: int, generator: torch.Generator) -> list[int]:
    """Draw the seeds of S posterior samples: all that a prediction takes from the position of its generator.

    Processes that share a prediction call it for the batches that they leave to others (`prediction.py`).
    """
    seeds: list[int] = torch.randint(2**63 - 1, (samples,), generator=generator, device=generator.device).tolist()
    return seeds


def precision(run: TrainingRun, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which the run's networks compute; losses and probabilities stay in float32."""
    return torch.autocast(device.type, torch.bfloat16) if run.optimizer.precision == "bfloat16" else nullcontext()


def network_state(model: nn.Module) -> State:
    """Return a detached copy of all tensors of `model` in host memory."""
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def state_with(model: nn.Module, beside: State) -> State:
    """Return the tensors of `model` and those that a posterior keeps beside it, in one state."""
    return {
        **network_state(model),
        **{f"{BESIDE}{name}": tensor.detach().cpu().clone() for name, tensor in beside.items()},
    }


def restore_with(model: nn.Module, state: State) -> State:
    """Give `model` its tensors of `state_with` back, in place; return the others, on its device."""
    model.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(BESIDE)})
    device = next(model.parameters()).device
    return {name.removeprefix(BESIDE): tensor.to(device) for name, tensor in state.items() if name.startswith(BESIDE)}
