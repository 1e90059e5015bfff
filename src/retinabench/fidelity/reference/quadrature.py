"""References of the warm-up targets by quadrature, without chains: the truth that samplers are tested against.

The integrals are sums over a regular grid of the few weights that matter (the trapezoid rule, whose error for smooth functions that vanish
at the ends falls exponentially in the number of points), once on a fine grid and once on a coarser one. Their difference bounds the error; it
stands as `mcse` in the reference, and the two results as its two "chains", from which the verdict is computed.

Letters: G grid points, N test points, C = 2 classes, S samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator
from retinabench.fidelity import distances
from retinabench.fidelity.networks import Bent
from retinabench.fidelity.reference.reference_file import Reference, ReferenceAbout
from retinabench.fidelity.targets.data import TargetData, labels, standardised
from retinabench.fidelity.targets.target import Target

Values = NDArray[np.float64]
Logits = Callable[[Values, Values], Values]
"""Weights (G, D), inputs (N, 2) -> the difference of the two logits, (G, N)."""
SAMPLES = 800
_NEGLIGIBLE = 1e-14  # of the largest weight of a grid point


@dataclass(frozen=True)
class Problem:
    """A posterior of two classes over few weights."""

    logits: Logits
    dimensions: int
    prior: float
    width: float
    steps: tuple[int, int]


def _linear(weights: Values, inputs: Values) -> Values:
    return weights[:, :2] @ inputs.T + weights[:, 2:]


def _bent(weights: Values, inputs: Values) -> Values:
    return np.asarray(Bent().outputs(weights, inputs, np)[..., 1])


# Of a linear layer with two outputs only the difference of their weights matters, whose variance is twice that of each.
# By network.
PROBLEMS = {"head-2": Problem(_linear, 3, 2.0, 5.0, (121, 91)), "banana": Problem(_bent, 2, 1.0, 7.0, (401, 301))}


def known(target: Target) -> bool:
    return target.network in PROBLEMS


def quadrature_reference(target: Target, data: TargetData, seed: int = 0, command: str = "") -> Reference:
    """Return the reference of a target whose posterior is `known`."""
    problem = PROBLEMS[target.network]
    (fine, *further), (coarse, *_) = (_predict(problem, target, data, steps, seed) for steps in problem.steps)
    epistemic, disagreement, samples = further
    shape, error = fine.shape, np.abs(fine - coarse)
    about = ReferenceAbout(
        task=target.name, target=target.fingerprint(data.sha256), data=data.sha256, kind="quadrature",
        chains=2, command=command, grids=problem.steps, error=float(error.max()),
    )  # fmt: skip
    reference = Reference(
        about, np.ones(shape, np.float32), np.full(shape, SAMPLES, np.float32), np.full(shape, SAMPLES, np.float32),
        error.astype(np.float32), epistemic.astype(np.float32), chain_probs=np.stack([fine, coarse]), samples=samples,
        pairwise_disagreement=disagreement,
    )  # fmt: skip
    return reference.with_verdict()


def _predict(problem: Problem, target: Target, data: TargetData, steps: int, seed: int) -> tuple[NDArray[Any], ...]:
    """Return probabilities, mutual information, pairwise disagreement and samples."""
    std = np.sqrt(problem.prior * target.prior_variance)
    axis = np.linspace(-problem.width, problem.width, steps) * std
    weights = np.stack([a.ravel() for a in np.meshgrid(*[axis] * problem.dimensions, indexing="ij")], axis=1)
    train, test = (inputs.astype(np.float64) for inputs in standardised(data))
    sign = 2.0 * labels(data)[0] - 1
    log_density = -0.5 * np.square(weights / std).sum(axis=1)
    for some in np.array_split(np.arange(len(weights)), -(-len(weights) // 20_000)):
        log_density[some] -= np.logaddexp(0, -sign * problem.logits(weights[some], train)).sum(axis=1)
    density = np.exp(log_density - log_density.max())
    kept = density > _NEGLIGIBLE
    weights, density = weights[kept], density[kept] / density[kept].sum()
    mean, entropy, squares = np.zeros((3, len(test)))
    for some in np.array_split(np.arange(len(weights)), -(-len(weights) // 20_000)):
        second = _sigmoid(problem.logits(weights[some], test))
        mean += density[some] @ second
        entropy += density[some] @ _entropy(second)
        squares += density[some] @ (second > 0.5)
    generator = numpy_generator(seed, "quadrature", target.name)
    drawn = generator.choice(len(weights), SAMPLES, p=density)
    one = _sigmoid(problem.logits(weights[drawn], test))
    disagreement, samples = np.array((2 * squares * (1 - squares)).mean()), np.stack([1 - one, one], axis=-1)
    information = np.maximum(_entropy(mean) - entropy, 0)
    return np.stack([1 - mean, mean], axis=1), information, disagreement, samples.astype(np.float16)


def _sigmoid(x: Values) -> Values:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def _entropy(p: Values) -> Values:
    return distances.entropy(np.stack([p, 1 - p], axis=-1))
