"""The infinite-width limit of the one-hidden-layer ReLU network: two Gaussian processes, mean and raw deviation.

The outputs of a network with weights and biases N(0, s²) and H hidden units have mean 0 and covariance

    K(x, x') = s² (1 + H E[relu(z) relu(z')]),   (z, z') ~ N(0, s² [x̃·x̃  x̃·x̃'; x̃·x̃'  x̃'·x̃']),   x̃ = (x, 1)

whatever H is; as H grows they become independent Gaussian processes of that covariance (Neal 1996, Williams 1997). Here
the H of the network stays in the covariance, and only its shape is replaced by the limit's. The expectation is the
arc-cosine kernel of order 1 (Cho & Saul 2009).

The likelihood is the target's, y ~ N(μ(x), σ(x)²), σ = softplus(r) + the target's floor. Given r, the process of μ is integrated in closed form;
what remains, r at the training points, is sampled by Hamiltonian Monte Carlo in coordinates that are N(0, I) a priori.
The predictions are exact draws of the limit's posterior predictive once these chains have converged.

Letters: N training points, M test points, K chains, R coordinates of r, S states kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from retinabench.core.errors import InputError, WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import torch_generator
from retinabench.fidelity.reference.diagnostics import split_rhat
from retinabench.fidelity.targets.data import TargetData, labels, standardised
from retinabench.fidelity.targets.target import Target
from retinabench.fidelity.targets.training import build_network
from retinabench.methods.mcmc import hmc
from retinabench.models.mlp import MLP

CHAINS, BURN_IN = 4, 60
STATES = 200  # of all chains together; each gives several draws of the test points
LARGEST_RHAT = 1.2  # of a deviation at a training point
ROUNDING = 1e-10  # eigenvalues below that share of the largest are 0


@dataclass(frozen=True)
class Prior:
    """Covariances of one process between training (N) and test points (M): (N, N), (N, M), (M, M), float64."""

    train: Tensor
    cross: Tensor
    test: Tensor


def relu_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """K of inputs (N, D) and (M, D), both float64 -> (N, M).

    With k = s² |x̃|², k' alike and θ the angle of x̃ and x̃', E[relu(z) relu(z')] = √(k k') (sin θ + (π - θ) cos θ) / 2π.
    """
    a, b = (torch.cat([x, torch.ones_like(x[:, :1])], dim=1) for x in (a, b))
    lengths = a.norm(dim=1)[:, None] * b.norm(dim=1)
    cosine = (a @ b.T / lengths).clamp(-1, 1)
    angle = cosine.acos()
    expected = prior_variance * lengths * (angle.sin() + (math.pi - angle) * cosine) / (2 * math.pi)
    covariance: Tensor = prior_variance * (1 + width * expected)
    return covariance


def sample(
    target: Target, data: TargetData, draws: int = 1000, seed: int = 0, progress: Progress = QUIET
) -> NDArray[np.float64]:
    """Return draws of y at the test points, noise included, in the standardised unit: (M, draws).

    Raises `InputError` for a target that is no regression by one hidden layer of ReLUs.
    """
    network = build_network(target, 0)
    relu = isinstance(network, MLP) and isinstance(network.act1, torch.nn.ReLU)
    if target.likelihood != "gaussian" or not relu:
        raise InputError(
            f"'{target.name}' is no regression by one hidden layer of ReLUs", hint="Name energy-gap."
        )
    x, test = (torch.from_numpy(inputs).double() for inputs in standardised(data))
    y = torch.from_numpy(labels(data)[0]).double()
    size = (target.prior_variance, int(network.fc.in_features))  # type: ignore[arg-type, union-attr]
    prior = Prior(
        relu_covariance(x, x, *size), relu_covariance(x, test, *size), relu_covariance(test, test, *size)
    )
    return posterior_draws(y, prior, prior, draws, seed, progress, target.floor).numpy()


def posterior_draws(
    y: Tensor,
    mean: Prior,
    raw: Prior,
    draws: int,
    seed: int,
    progress: Progress = QUIET,
    floor: float = 0.0,
) -> Tensor:
    """Draw y at the test points, (M, draws), given targets (N,) and the priors of μ and of r."""
    root, inverse = square_root(raw.train)
    generator = torch_generator("cpu", seed, "infinite_width")
    states = noise_states(NoiseLikelihood(y, mean.train, root, floor), root, generator, progress)
    rest = square_root(raw.test - (inverse.T @ raw.cross).T @ (inverse.T @ raw.cross))[0]
    predicted = []
    for number, state in enumerate(states):
        count = draws * (number + 1) // len(states) - draws * number // len(states)
        center, spread = conditioned(y, mean, softplus(root @ state) + floor)
        mu = center[:, None] + spread @ _normal((spread.shape[1], count), generator)
        r = (raw.cross.T @ (inverse @ state))[:, None] + rest @ _normal((rest.shape[1], count), generator)
        predicted.append(mu + (softplus(r) + floor) * _normal(mu.shape, generator))
    return torch.cat(predicted, dim=1)


@dataclass(frozen=True)
class NoiseLikelihood:
    """log p(y | r), μ integrated out: log N(y; 0, C + diag σ²), σ = softplus(r) + floor, r = F ξ; the density of `hmc.py` in ξ.

    y (N,), covariance C (N, N), root F (N, R), floor of σ.
    """

    y: Tensor
    covariance: Tensor
    root: Tensor
    floor: float = 0.0

    def __call__(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """(K, R) -> values (K,) and gradients (K, R)."""
        r = coordinates @ self.root.T
        deviation = softplus(r) + self.floor
        factor, failed = torch.linalg.cholesky_ex(self.covariance + torch.diag_embed(deviation.square()))
        inverse = torch.cholesky_inverse(factor)
        solved = inverse @ self.y
        value = -0.5 * (solved @ self.y) - factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        value = value - 0.5 * len(self.y) * math.log(2 * math.pi)
        by_variance = 0.5 * (solved.square() - inverse.diagonal(dim1=1, dim2=2))
        gradient = (by_variance * 2 * deviation * r.sigmoid()) @ self.root
        # A deviation that underflows beside a singular C ends the trajectory; the sampler refuses what is no number.
        return torch.where(failed > 0, torch.nan, value), gradient


def noise_states(
    likelihood: NoiseLikelihood, root: Tensor, generator: torch.Generator, progress: Progress = QUIET
) -> Tensor:
    """Sample ξ by K chains from draws of the prior; return the states of all chains, (S, R).

    Raises `WorkError` where the chains still differ.
    """
    state = hmc.start(likelihood, _normal((CHAINS, root.shape[1]), generator))
    # A step costs little here: burn-in begins boldly, as Hoffman & Gelman do, and so wanders off the starting points.
    size = hmc.StepSize(10 * hmc.first_step(likelihood, state, 1.0, generator), target=0.8)
    kept: list[Tensor] = []
    with progress.track("Noise of the infinite-width limit", BURN_IN + STATES // CHAINS, "states") as advance:
        for number in range(BURN_IN + STATES // CHAINS):
            step = size.step if number < BURN_IN else size.adapted
            steps = hmc.steps_for(step, 1.0)
            state, info = hmc.transition(
                likelihood, state, prior_variance=1.0, step=step, steps=steps, generator=generator
            )
            if number < BURN_IN:
                size.update(float(info.acceptance.mean()))
            else:
                kept.append(state.weights)
            advance(1)
    chains = torch.stack(kept, dim=1)
    rhat = split_rhat(softplus(chains @ root.T).numpy())
    if not rhat.max() <= LARGEST_RHAT:
        raise WorkError(f"the chains of the infinite-width limit have not met: R-hat {rhat.max():.2f}")
    progress.say(f"Deviations at the training points: R-hat {np.median(rhat):.2f}, at most {rhat.max():.2f}")
    return chains.transpose(0, 1).reshape(-1, root.shape[1])


def conditioned(y: Tensor, prior: Prior, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Gaussian process regression with noise deviations (N,): the mean (M,) and a root (M, M) of the covariance."""
    factor = torch.linalg.cholesky(prior.train + torch.diag(deviation.square()))
    cross = torch.linalg.solve_triangular(factor, prior.cross, upper=False)
    solved = torch.linalg.solve_triangular(factor, y[:, None], upper=False)[:, 0]
    return cross.T @ solved, square_root(prior.test - cross.T @ cross)[0]


def square_root(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return F (N, R) with F Fᵀ = covariance and its pseudo-inverse's transpose: r = F ξ, and E[ξ | r] = Gᵀ r.

    By eigenvectors, without those of eigenvalue 0: inputs that are alike need no jitter.
    """
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > ROUNDING * values[-1].clamp(min=0)
    root = values[kept].sqrt()
    return vectors[:, kept] * root, vectors[:, kept] / root


def _normal(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)
