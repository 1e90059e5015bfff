"""The density of a target over flat weights, which the reference sampler needs, and the predictions of weights.

Letters: K chains, P weights, N points, O outputs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from retinabench.fidelity.targets.batched_networks import BATCHED, CLOSED_FORM, Batched
from retinabench.fidelity.targets.closed_forms.mlp_gaussian import MLPGaussian
from retinabench.fidelity.targets.closed_forms.softmax_heads import LinearSoftmax
from retinabench.fidelity.targets.data import TargetData, labels, standardised
from retinabench.fidelity.targets.target import Target
from retinabench.fidelity.targets.training import build_network, likelihood_of
from retinabench.methods.hmc import LogLikelihood
from retinabench.methods.training.likelihood import Likelihood

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
        return self.values.clone(), self.gradient.clone()

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
            self.values, self.gradient = self.log_likelihood(self.weights)
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
        cls,
        target: Target,
        data: TargetData,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        threads: int = 1,
    ) -> Density:
        """Return the density of a target."""
        inputs, test = (torch.from_numpy(a).to(device) for a in standardised(data))
        truth = torch.from_numpy(labels(data)[0]).to(device)
        inputs, test, truth = (x.to(dtype) if x.is_floating_point() else x for x in (inputs, test, truth))
        return cls(
            target, (inputs, truth), test, build_network(target, 0).eval().to(device, dtype), threads=threads
        )

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> log-likelihoods (K,) and their gradients (K, P), summed over all training points."""
        if weights.is_cuda:
            return self._recorded(weights)
        return self.compute(weights)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> the gradients alone (K, P); cheaper for some densities in closed form."""
        if self._closed_form and not weights.is_cuda:
            return self._closed_form.gradient(weights)
        return self(weights)[1]

    def compute(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Do what a call does, without the recorded graph."""
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
                losses = self.likelihood.negative_log_likelihood(
                    outputs.flatten(0, 1), truth.repeat(len(weights))
                )
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
        """What the outputs mean."""
        return likelihood_of(self.target)

    def named(self, weights: Tensor) -> dict[str, Tensor]:
        """Cut (K, P) into the network's parameters by name, each (K, ...)."""
        shapes = {name: p.shape for name, p in self.network.named_parameters()}
        pieces = torch.split(weights, [shape.numel() for shape in shapes.values()], dim=1)
        return {
            name: piece.reshape(-1, *shape)
            for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
        }

    @cached_property
    def _how(self) -> Batched:
        if self.target.network in BATCHED and not self.test.is_cuda:
            return BATCHED[self.target.network]
        # Weights that differ make grouped convolutions and batched products: good for GPUs, no gain on processors unless the
        # network is so small that the overhead of each operation is what costs.
        together = vmap(
            lambda named, inputs: functional_call(self.network, named, (inputs,)), in_dims=(0, None)
        )
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
