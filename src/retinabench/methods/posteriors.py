"""Posteriors that several methods share: collected networks, networks that draw, and draws of all weights.

Letters: S posterior samples, B batch, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.core.errors import InputError
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training import posterior as base
from retinabench.methods.training.checkpoint import Checkpoint, load_tensors, save_tensors
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import BESIDE, NetworkOnly, State, network_state, rewound, sample_seeds
from retinabench.models.stochastic.drawing import Draw, use_draws

SAMPLES = "samples"  # the folder below the checkpoint's


@dataclass
class CollectedPosterior:
    """S networks of one shape: `samples` holds all tensors of each, `model` is where one at a time is put to work.

    During the training every sample is a file of its own below the checkpoint's folder, which a repeated epoch writes again with
    the same bits. The tensors are mapped from these files, and later from `posterior.pt`: their values are read while a sample
    predicts, and the system may drop them again. Without a folder the samples stay in memory.
    """

    model: nn.Module
    likelihood: Likelihood
    samples: list[State] = field(default_factory=list)

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> Self:
        """Return the posterior without samples: the `build` of methods that collect some."""
        return cls(model, likelihood)

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of the samples in the order of their collection, one network at a time.

        An untrained posterior predicts with its network.
        """
        self.model.eval()
        predictions, available = [], self.samples or [dict(self.model.state_dict())]
        count = min(samples, len(available))
        for k in range(count):  # evenly spaced, the last among them
            sample = available[(k + 1) * len(available) // count - 1]
            weights = {name: tensor.to(images.device) for name, tensor in sample.items()}
            predictions.append(self.likelihood.predictive(functional_call(self.model, weights, (images,))))
        return torch.stack(predictions)

    def state(self) -> State:
        numbered = ((number, *one) for number, sample in enumerate(self.samples) for one in sample.items())
        return {f"{BESIDE}{number:05d}/{name}": tensor for number, name, tensor in numbered}  # not copied

    def restore(self, state: State) -> None:
        """Take over saved tensors as they come, mapped or not; ValueError where one is of no tensor of the network."""
        own = {name: (tensor.shape, tensor.dtype) for name, tensor in self.model.state_dict().items()}
        samples: dict[str, State] = {}
        for key, tensor in state.items():
            number, name = key.removeprefix(BESIDE).split("/")
            samples.setdefault(number, {})[name] = tensor
        for number, sample in samples.items():
            if {name: (tensor.shape, tensor.dtype) for name, tensor in sample.items()} != own:
                raise ValueError(f"sample {number:.20} has other tensors")
        self.samples = [samples[number] for number in sorted(samples)]


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
        distributed.wait()  # until the process that writes has written
        stored = self.checkpoint.folder is not None
        samples = [load_tensors(self._file(k), mapped=True) if stored else self.memory[k] for k in range(count)]
        return CollectedPosterior(self.model, likelihood, samples)

    def _file(self, number: int) -> Path:
        assert self.checkpoint.folder is not None
        return self.checkpoint.folder / SAMPLES / f"{number:05d}.pt"


def before_steps(objective: Objective, steps: Sequence[int], action: Callable[[int], None]) -> Objective:
    """Return `objective`, before which `action(k)` is done when steps[k] steps are done.

    A network that is collected there has its weights after so many steps. After the last step of a training no
    objective is called: an action that is due then is the caller's.
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
    """Return `count` numbers of steps that cut those after `first` into equal parts; the last one is `last`."""
    if last - first < count:
        problem = f"{last - first} steps are left for the {count} samples of the method '{run.method.name}'"
        raise InputError(problem, hint="Lower method.samples, or raise optimizer.epochs.")
    return [first + (last - first) * (k + 1) // count for k in range(count)]


T = TypeVar("T")
CACHED_VALUES = 2**28  # S times the number of weights: 1 GiB of float32


def fits_cache(samples: int, model: nn.Module) -> bool:
    """Tell whether so many sets of the weights of `model` may be cached."""
    return samples * sum(p.numel() for p in model.parameters()) <= CACHED_VALUES


class DrawCache(Generic[T]):
    """The last samples and what they were drawn from; after a change of that, they are drawn anew.

    A posterior over weights draws the same S functions for every batch of a prediction: here they are drawn once.
    """

    def __init__(self) -> None:
        self._request: tuple[torch.device, int, int] | None = None
        self._sources: list[tuple[Tensor, int]] = []
        self._samples: list[T] = []

    def samples(
        self,
        generator: torch.Generator,
        count: int,
        sources: Sequence[Tensor],
        draw: Callable[[torch.Generator], Iterable[T]],
        *,
        cache: bool,
    ) -> Iterable[T]:
        """Return `count` samples that `draw` yields from the beginning of the generator's stream, or yielded before."""
        if not cache:
            return draw(rewound(generator))
        request = (generator.device, generator.initial_seed(), count)
        versions = [tensor._version for tensor in sources]
        same = len(sources) == len(self._sources) and all(
            one is other and now == then
            for one, now, (other, then) in zip(sources, versions, self._sources, strict=True)
        )
        if request != self._request or not same:
            # Freed before the new ones take their memory, and forgotten in case drawing them fails.
            self._samples, self._request = [], None
            self._samples = list(draw(rewound(generator)))
            self._request, self._sources = request, list(zip(sources, versions, strict=True))
        return self._samples


@dataclass
class DrawnWeights(ABC):
    """A distribution over all weights of a network, with tensors beside it: a prediction is one pass per draw."""

    model: nn.Module
    likelihood: Likelihood
    cache: DrawCache[dict[str, Tensor]] = field(default_factory=DrawCache, repr=False, kw_only=True)

    @property
    @abstractmethod
    def beside(self) -> State:
        """The tensors beside the network, by name."""

    @abstractmethod
    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield S draws of all weights by name, from the beginning of the generator's stream."""

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        self.model.eval()
        sources = [*self.model.parameters(), *self.beside.values()]
        drawn = self.cache.samples(
            generator, samples, sources, partial(self.draw, samples), cache=fits_cache(samples, self.model)
        )
        passes = [functional_call(self.model, weights, (images,)) for weights in drawn]
        return torch.stack([self.likelihood.predictive(outputs) for outputs in passes])

    def state(self) -> State:
        return base.state_with(self.model, self.beside)

    def restore(self, state: State) -> None:
        """Take over saved tensors; ValueError where those beside the network have other names or axes."""
        found, own = base.restore_with(self.model, state), self.beside
        if set(found) != set(own):
            raise ValueError(f"beside the network are {sorted(found)!s:.60}, not {sorted(own)}")
        for name, tensor in found.items():
            if tensor.ndim != own[name].ndim or tensor.shape[-1:] != own[name].shape[-1:]:
                raise ValueError(f"'{name}' has shape {tuple(tensor.shape)}")
        for name, tensor in found.items():
            setattr(self, name, tensor)


@dataclass
class WeightPosterior(DrawnWeights):
    """Independent Gaussians over the weights: means in the network, stds beside it, by name."""

    stds: dict[str, Tensor]

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> Self:
        """Return the network with no width around it: the `build` of methods that fit such Gaussians."""
        return cls(model, likelihood, {name: torch.zeros_like(p) for name, p in model.named_parameters()})

    @property
    def beside(self) -> State:
        return self.stds

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        for _ in range(samples):
            yield {
                name: p + self.stds[name] * torch.randn(p.shape, generator=generator, device=p.device)
                for name, p in self.model.named_parameters()
            }

    def restore(self, state: State) -> None:
        self.stds = base.restore_with(self.model, state)


# Input values in one pass. A processor's cache is small: one sample per pass is fastest but for the smallest images. A
# GPU needs large passes: 40 images of 512 px, or 2,700 of 64 px. A larger batch fills one pass per sample.
PASS_VALUES = {"cpu": 2**18, "cuda": 2**25}


@dataclass
class SampledPosterior(NetworkOnly):
    """One network with layers that draw: weights, one function for all images, or units of each image (`per_image`)."""

    model: nn.Module
    likelihood: Likelihood
    per_image: bool = False
    cache: DrawCache[Draw] = field(default_factory=DrawCache, repr=False)

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        cached = not self.per_image and fits_cache(samples, self.model)

        def draw(start: torch.Generator) -> list[Draw]:
            return [
                Draw(torch.Generator(start.device).manual_seed(seed), number, {} if cached else None)
                for number, seed in enumerate(sample_seeds(samples, start))
            ]

        if self.per_image:
            draws = draw(generator)
        else:
            draws = list(self.cache.samples(generator, samples, list(self.model.parameters()), draw, cache=cached))
        self.model.eval()
        # How many samples share a pass changes no draw, only the rounding of the batched kernels.
        together = max(1, PASS_VALUES.get(images.device.type, 2**18) // images.numel())
        probs = []
        for first in range(0, samples, together):
            chunk = draws[first : first + together]
            use_draws(self.model, chunk)
            drawn = self.likelihood.predictive(self.model(torch.cat([images] * len(chunk))))
            probs.append(drawn.view(len(chunk), len(images), -1))
        return torch.cat(probs)
