"""Posterior samples that are whole networks, on disk: S of them in the memory of one.

During the training every sample is a file of its own below the checkpoint's folder; a training that is killed and repeats
an epoch writes the same bits again. The posterior then holds tensors that are mapped from these files, and later from
`posterior.pt`: their values are read while a sample predicts, and the system may drop them again. Without a folder the
samples stay in memory.

Each sample has all tensors of the network, the running statistics of its batch norms among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.core.errors import InputError
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint, load_tensors, save_tensors
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.losses import BatchInfo, Objective
from retinabench.methods.training.posterior import BESIDE, State, network_state

SAMPLES = "samples"  # the folder below the checkpoint's


@dataclass
class CollectedPosterior:
    """S networks of one shape: `samples` holds the tensors of each, `model` is where one at a time is put to work."""

    model: nn.Module
    likelihood: Likelihood
    samples: list[State] = field(default_factory=list)

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of the samples in the order of their collection, one network at a time.

        An untrained posterior predicts with its network.
        """
        self.model.eval()
        predictions = []
        for sample in evenly(self.samples or [dict(self.model.state_dict())], samples):
            weights = {name: tensor.to(images.device) for name, tensor in sample.items()}
            predictions.append(self.likelihood.predictive(functional_call(self.model, weights, (images,))))
        return torch.stack(predictions)

    def state(self) -> State:
        """The tensors of every sample, not copied."""
        return {
            f"{BESIDE}{number:05d}/{name}": tensor
            for number, sample in enumerate(self.samples)
            for name, tensor in sample.items()
        }

    def restore(self, state: State) -> None:
        """Take over saved tensors as they come, mapped or not; ValueError where one is of no tensor of the network."""
        own = {name: (tensor.shape, tensor.dtype) for name, tensor in self.model.state_dict().items()}
        found: dict[str, State] = {}
        for key, tensor in state.items():
            number, name = key.removeprefix(BESIDE).split("/")
            found.setdefault(number, {})[name] = tensor
        for number, sample in found.items():
            if {name: (tensor.shape, tensor.dtype) for name, tensor in sample.items()} != own:
                raise ValueError(f"sample {number:.20} has other tensors")
        self.samples = [found[number] for number in sorted(found)]


def evenly(samples: Sequence[State], count: int) -> list[State]:
    """Return `count` evenly spaced samples, the last among them; all where there are fewer."""
    count = min(count, len(samples))
    return [samples[(k + 1) * len(samples) // count - 1] for k in range(count)]


@dataclass
class Collector:
    """Takes a network in at several times of a training of `checkpoint`, and gives it back as samples."""

    model: nn.Module
    checkpoint: Checkpoint
    memory: dict[int, State] = field(default_factory=dict)

    def collect(self, number: int) -> None:
        """Keep the network as it is as sample `number`, instead of an earlier one of that number."""
        if self.checkpoint.folder is None:
            self.memory[number] = network_state(self.model)
        elif self.checkpoint.writes:
            save_tensors(self._file(number), network_state(self.model))

    def posterior(self, count: int, likelihood: Likelihood) -> CollectedPosterior:
        """Return the samples 0 … count - 1."""
        distributed.wait()  # until the process that writes has written
        if self.checkpoint.folder is None:
            samples = [self.memory[number] for number in range(count)]
        else:
            samples = [load_tensors(self._file(number), mapped=True) for number in range(count)]
        return CollectedPosterior(self.model, likelihood, samples)

    def _file(self, number: int) -> Path:
        assert self.checkpoint.folder is not None
        return self.checkpoint.folder / SAMPLES / f"{number:05d}.pt"


def before_steps(objective: Objective, steps: Sequence[int], action: Callable[[int], None]) -> Objective:
    """Return `objective`, before which `action(k)` is done when steps[k] steps are done.

    A network that is collected there has its weights after so many steps. After the last step of a training no
    objective is called: an action that is due then is the caller's.

    Args:
        objective: Of the training loop.
        steps: Numbers of steps, ascending.
        action: Called with the 0-based position k in `steps`.
    """
    numbers, done = {step: number for number, step in enumerate(steps)}, -1

    def act_and_evaluate(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        nonlocal done
        number = numbers.get(batch.step, done)
        if number != done:  # once, of however many parts the step has
            action(number)
            done = number
        return objective(images, labels, batch)

    return act_and_evaluate


def evenly_spaced(first: int, last: int, count: int, run: TrainingRun) -> list[int]:
    """Return `count` numbers of steps that cut those after `first` into equal parts; the last one is `last`.

    Args:
        first: Step after which they begin.
        last: The last of them.
        count: How many.
        run: Named in the error message.

    Raises:
        InputError: There are fewer steps than samples.
    """
    if last - first < count:
        raise InputError(
            f"{last - first} steps are left for the {count} samples of the method '{run.method.name}'",
            hint="Lower method.samples, or raise optimizer.epochs.",
        )
    return [first + (last - first) * (k + 1) // count for k in range(count)]
