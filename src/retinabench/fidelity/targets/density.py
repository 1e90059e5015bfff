"""The density of a target: log likelihood and prior of one network or of many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import conv2d, linear, silu

from retinabench.data.loader import Batches, array_batches
from retinabench.fidelity.networks import SMOOTH_HEADS
from retinabench.fidelity.targets.closed_forms import HiddenSoftmax, LinearSoftmax, MLPGaussian
from retinabench.fidelity.targets.data import TargetData, labels, standardised
from retinabench.fidelity.targets.target import Target
from retinabench.methods.hmc import LogLikelihood
from retinabench.methods.training.likelihood import Categorical, Gaussian, Likelihood
from retinabench.models.build import build_published, set_arithmetic

Weights = Mapping[str, Tensor]


def lenet_smooth(weights: Weights, inputs: Tensor) -> Tensor:
    """(K, ...), (N, 3, 28, 28) -> (K, N, O).

    The first convolution, of inputs that all chains share, is one of K times as many channels. The later ones are
    separate: on processors a grouped convolution takes three times as long as its groups.
    """
    first = conv2d(inputs, weights["conv1.weight"].flatten(0, 1), weights["conv1.bias"].flatten(), padding=2)
    maps = torch.split(_halved(silu(first)), weights["conv1.bias"].shape[1], dim=1)
    outputs = []
    for k, x in enumerate(maps):
        own = {name: values[k] for name, values in weights.items()}
        x = _halved(silu(conv2d(x, own["conv2.weight"], own["conv2.bias"]))).flatten(1)
        x = silu(linear(x, own["fc1.weight"], own["fc1.bias"]))
        x = silu(linear(x, own["fc2.weight"], own["fc2.bias"]))
        outputs.append(linear(x, own["fc.weight"], own["fc.bias"]))
    return torch.stack(outputs)


def _halved(maps: Tensor) -> Tensor:
    """Average 2 x 2 blocks: on processors this is four times as fast as `avg_pool2d`."""
    rows = maps[:, :, ::2] + maps[:, :, 1::2]
    return (rows[..., ::2] + rows[..., 1::2]) * 0.25


def linear_head(weights: Weights, inputs: Tensor, layer: str = "fc") -> Tensor:
    """(K, ...), (N, D) or (K, N, D) -> (K, N, O): one linear layer."""
    bias = weights[f"{layer}.bias"]
    return torch.baddbmm(bias[:, None], inputs.expand(len(bias), -1, -1), weights[f"{layer}.weight"].mT)


def mlp(weights: Weights, inputs: Tensor, active: Callable[[Tensor], Tensor] = torch.relu) -> Tensor:
    """(K, ...), (N, D) -> (K, N, O): one hidden layer of rectified units, or of others."""
    return linear_head(weights, active(linear_head(weights, inputs, "fc1")))


class Batched(NamedTuple):
    """How many chains and points are evaluated at once, and by which function."""

    forward: Callable[[Weights, Tensor], Tensor]
    chains: int
    points: int


BATCHED = {
    **dict.fromkeys(("lenet-smooth", "lenet-3-smooth"), Batched(lenet_smooth, 2, 250)),
    **dict.fromkeys(("mlp-8-50-2", "head-8-8"), Batched(mlp, 64, 4096)),
    **dict.fromkeys(SMOOTH_HEADS, Batched(partial(mlp, active=silu), 64, 4096)),
    **dict.fromkeys(("head-8", "head-2"), Batched(linear_head, 64, 4096)),
}

# Log-likelihoods with a gradient in closed form, by network and likelihood; they take training inputs, targets and the floor.
CLOSED_FORM: dict[tuple[str, str], Callable[[Tensor, Tensor, float], MLPGaussian | LinearSoftmax]] = {
    ("mlp-8-50-2", "gaussian"): MLPGaussian,
    **dict.fromkeys([("head-2", "categorical"), ("head-8", "categorical")], LinearSoftmax),
    ("head-8-8", "categorical"): HiddenSoftmax,
    **{(k, "categorical"): partial(HiddenSoftmax, hidden=units, smooth=True) for k, units in SMOOTH_HEADS.items()},
}


def build_network(target: Target, seed: int) -> nn.Module:
    """Return the target's network, its weights a function of `seed`."""
    model = build_published(target.network, seed, target.outputs)
    count = sum(p.numel() for p in model.parameters())
    if count != target.parameters:
        raise AssertionError(f"'{target.network}' has {count} weights; '{target.name}' says {target.parameters}")
    return model


def likelihood_of(target: Target) -> Likelihood:
    """Return what the outputs of the target's network mean."""
    return Gaussian(target.floor) if target.likelihood == "gaussian" else Categorical(target.outputs)


def point_batches(data: TargetData, batch_size: int, seed: int, device: torch.device) -> Batches:
    """Return the batches of all training points, of which none is held out: the posterior is that of all of them."""
    return array_batches(standardised(data)[0], labels(data)[0], batch_size, seed, device)


SMALL = 1000  # weights


class Recorded:
    """A log-likelihood on a GPU that is recorded as a CUDA graph at its first call: one launch instead of hundreds.

    All calls must have weights of one shape.
    """

    def __init__(self, log_likelihood: LogLikelihood) -> None:
        self.log_likelihood = log_likelihood
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        if self.graph is None:
            self._record(weights)
        self.weights.copy_(weights)
        assert self.graph is not None
        self.graph.replay()
        return self.values.clone(), self.gradients.clone()

    def _record(self, weights: Tensor) -> None:
        self.weights = weights.detach().clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries choose their algorithms before the recording
            for _ in range(3):
                self.log_likelihood(self.weights)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.values, self.gradients = self.log_likelihood(self.weights)
        self.graph = graph


@dataclass(eq=False)
class Density:
    """log p(y | x, w) of a target's training points, for flat weights in the order of the network's parameters.

    Calling it is the `LogLikelihood` of `methods/hmc.py`: (K, P) -> values (K,), gradients (K, P). On processors the
    chains are worked off in groups of a fixed size, each by one of `threads` threads: the numbers do not depend on how
    many there are. On a GPU all chains are one batch, and the whole evaluation one CUDA graph.
    """

    target: Target
    train: tuple[Tensor, Tensor]
    test: Tensor
    network: nn.Module = field(repr=False)
    threads: int = 1

    @classmethod
    def of(
        cls, target: Target, data: TargetData, device: str = "cpu", dtype: torch.dtype = torch.float32, threads: int = 1
    ) -> Density:
        """Return the density of a target; on a GPU, products of float32 are exact for this process."""
        set_arithmetic("float32", torch.device(device))
        inputs, test = (torch.from_numpy(a).to(device) for a in standardised(data))
        truth = torch.from_numpy(labels(data)[0]).to(device)
        inputs, test, truth = (x.to(dtype) if x.is_floating_point() else x for x in (inputs, test, truth))
        return cls(target, (inputs, truth), test, build_network(target, 0).eval().to(device, dtype), threads=threads)

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> log-likelihoods (K,) and their gradients (K, P), summed over all training points."""
        return self._recorded(weights) if weights.is_cuda else self.compute(weights)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> the gradients alone (K, P); cheaper for some densities in closed form."""
        if self._closed_form and not weights.is_cuda:
            return self._closed_form.gradient(weights)
        return self(weights)[1]

    def compute(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        if self._closed_form:
            return self._closed_form(weights)
        groups = torch.split(weights, self._how.chains)
        pairs = self._pool.map(self._of_group, groups) if len(groups) > 1 else map(self._of_group, groups)
        values, gradients = zip(*pairs, strict=True)
        return torch.cat(values), torch.cat(gradients)

    def _of_group(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.detach().requires_grad_(True)
        values, gradient = torch.zeros_like(weights[:, 0]), torch.zeros_like(weights)
        for inputs, truth in zip(*(torch.split(x, self._how.points) for x in self.train), strict=True):
            with torch.enable_grad():  # in each thread: the switch is a thread's own
                outputs = self.outputs(weights, inputs)
                losses = self.likelihood.negative_log_likelihood(outputs.flatten(0, 1), truth.repeat(len(weights)))
                part = -losses.view(len(weights), -1).sum(dim=1)
                (slope,) = torch.autograd.grad(part.sum(), weights)
            values, gradient = values + part.detach(), gradient + slope
        return values.detach(), gradient

    def outputs(self, weights: Tensor, inputs: Tensor) -> Tensor:
        """(K, P), (N, ...) -> (K, N, O)."""
        return self._how.forward(self.named(weights), inputs)

    @torch.no_grad()
    def predict(self, weights: Tensor, inputs: Tensor | None = None) -> Tensor:
        """(K, P) -> class probabilities (K, N, C), or mean and std (K, N, 2), of the test points."""
        inputs = self.test if inputs is None else inputs

        def of_group(group: Tensor) -> Tensor:
            with torch.no_grad():  # in each thread: the switch is a thread's own
                parts = [self.outputs(group, x) for x in torch.split(inputs, self._how.points)]
                outputs = torch.cat(parts, dim=1)
                return self.likelihood.predictive(outputs.flatten(0, 1)).view((*outputs.shape[:2], -1))

        return torch.cat(list(self._pool.map(of_group, torch.split(weights, self._how.chains))))

    @cached_property
    def likelihood(self) -> Likelihood:
        return likelihood_of(self.target)

    def named(self, weights: Tensor) -> dict[str, Tensor]:
        """Cut (K, P) into the network's parameters by name, each (K, ...)."""
        shapes = {name: p.shape for name, p in self.network.named_parameters()}
        pieces = torch.split(weights, [shape.numel() for shape in shapes.values()], dim=1)
        return {name: piece.reshape(-1, *shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}

    @cached_property
    def _how(self) -> Batched:
        if self.target.network in BATCHED and not self.test.is_cuda:
            return BATCHED[self.target.network]
        # Weights that differ make grouped convolutions and batched products: good for GPUs, no gain on processors unless the
        # network is so small that the overhead of each operation is what costs.
        together = vmap(lambda named, inputs: functional_call(self.network, named, (inputs,)), in_dims=(0, None))
        return Batched(together, 1024 if self.test.is_cuda or self.target.parameters < SMALL else 1, 4096)

    @cached_property
    def _closed_form(self) -> MLPGaussian | LinearSoftmax | None:
        made = CLOSED_FORM.get((self.target.network, self.target.likelihood))
        return made(*self.train, self.target.floor) if made else None

    @cached_property
    def _recorded(self) -> Recorded:
        return Recorded(self.compute)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads)
