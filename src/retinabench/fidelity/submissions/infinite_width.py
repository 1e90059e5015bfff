"""The infinite-width limit of the one-hidden-layer ReLU network: Gaussian processes of a regression (mean and raw std) and of classes.

The outputs of a network with weights and biases N(0, s²) and H hidden units have mean 0 and covariance

    K(x, x') = s² (1 + H E[relu(z) relu(z')]),   (z, z') ~ N(0, s² [x̃·x̃  x̃·x̃'; x̃·x̃'  x̃'·x̃']),   x̃ = (x, 1)

for every H; as H grows they become independent Gaussian processes of that covariance (Neal 1996; Williams 1997). The expectation is
the arc-cosine kernel of order 1 (Cho & Saul 2009). With the neural tangent kernel Θ the process is that of the network's linear
expansion at its random start, whose weights have the same prior: covariance s² Θ (Jacot, Gabriel & Hongler 2018; He,
Lakshminarayanan & Teh 2020).

Regression: y ~ N(μ(x), σ(x)²), σ = softplus(r) + floor. Given r, the process of μ is integrated in closed form; r at the training
points is sampled by Hamiltonian Monte Carlo in coordinates that are N(0, I) a priori. Classes: so are the C latent functions,
f_c = F ξ_c with F Fᵀ the covariance. Given them, values at the test points are drawn exactly: nothing is approximated but the
length of the chains, which must converge.

Letters: N training points, M test points, K chains, R coordinates, C classes, S states kept.

An entry takes what its chains need, whatever the budget, and has a track of its own. The folder of a run holds `submission.npz` alone; a killed run begins
again and writes the same bits.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from retinabench.core.errors import QUIET, InputError, Progress, WorkError
from retinabench.core.random_streams import torch_generator
from retinabench.core.version import __version__
from retinabench.fidelity.reference.convergence import split_rhat
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES
from retinabench.fidelity.submissions.submission import (
    DRAWS,
    About,
    Budget,
    Implied,
    Submission,
    submission_in,
    submission_of,
    write_submission,
)
from retinabench.fidelity.targets.data import TargetData, labels, standardised
from retinabench.fidelity.targets.density import build_network
from retinabench.fidelity.targets.target import Target
from retinabench.methods import hmc
from retinabench.methods.chains import Counted
from retinabench.models.networks.small import MLP, Head

Covariance = Callable[[Tensor, Tensor, float, int], Tensor]
"""Inputs (N, D) and (M, D), prior variance of the weights, hidden units -> the covariance (N, M)."""


def relu_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """Return the prior covariance K (N, M) of a network with one hidden layer of ReLU units between inputs (N, D) and (M, D).

    With k = s² |x̃|², k' alike and θ the angle of x̃ and x̃', E[relu(z) relu(z')] = √(k k') (sin θ + (π - θ) cos θ) / 2π.
    """
    products, lengths = _products(a, b)
    cosine = (products / lengths).clamp(-1, 1)
    angle = cosine.acos()
    expected = prior_variance * lengths * (angle.sin() + (math.pi - angle) * cosine) / (2 * math.pi)
    covariance: Tensor = prior_variance * (1 + width * expected)
    return covariance


def _products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return x̃·x̃' and |x̃| |x̃'|, (N, M), of inputs with a 1 at their end."""
    a, b = (torch.cat([x, torch.ones_like(x[:, :1])], dim=1) for x in (a, b))
    return a @ b.T, a.norm(dim=1)[:, None] * b.norm(dim=1)


def tangent_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """Return s² Θ (N, M), Θ the neural tangent kernel of that network at random weights of variance s².

    Θ sums the products of the slopes by all weights: those by the output's weights and bias give K / s², those by the hidden layer's
    H s² E[1(z > 0) 1(z' > 0)] x̃·x̃', and the expectation is (π - θ) / 2π.
    """
    products, lengths = _products(a, b)
    both = (math.pi - (products / lengths).clamp(-1, 1).acos()) / (2 * math.pi)
    return relu_covariance(a, b, prior_variance, width) + prior_variance**2 * width * both * products


def linear_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """Return s² x̃·x̃' (N, M): a linear layer's own process, which is its tangent as well."""
    return prior_variance * (1 + a @ b.T)


KERNELS: dict[str, Covariance] = {"nngp": relu_covariance, "ntk": tangent_covariance}
CHAINS, BURN_IN = 4, 60
STATES = 200  # of all chains together; each gives several draws of the test points
LARGEST_RHAT = 1.2  # of a std at a training point
ROUNDING = 1e-10  # eigenvalues below that share of the largest are 0


@dataclass(frozen=True)
class ProcessCovariances:
    """Covariances of one process between training (N) and test points (M): (N, N), (N, M), (M, M), float64."""

    train: Tensor
    cross: Tensor
    test: Tensor


def prior_of(target: Target, data: TargetData, kernel: str) -> ProcessCovariances:
    """Return the covariances of one output of the target's network in the infinite-width limit."""
    network = build_network(target, 0)
    relu = isinstance(network, MLP) and isinstance(network.act1, torch.nn.ReLU)
    linear = isinstance(network, Head) and network.hidden is None
    if not relu and not linear:
        raise InputError(
            f"the infinite-width limit of '{target.network}' is not known here: it has not one hidden layer of ReLUs",
            hint="Name energy-gap or idrid-head-mlp.",
        )
    covariance = KERNELS[kernel] if relu else linear_covariance
    x, test = (torch.from_numpy(inputs).double() for inputs in standardised(data))
    size = (target.prior_variance, int(network.fc.in_features))  # type: ignore[arg-type, union-attr]
    return ProcessCovariances(covariance(x, x, *size), covariance(x, test, *size), covariance(test, test, *size))


def sample(
    target: Target, data: TargetData, draws: int = 1000, seed: int = 0, progress: Progress = QUIET, kernel: str = "nngp"
) -> tuple[NDArray[np.floating], int]:
    """Return draws of y at the test points, noise included, in the standardised unit, (M, draws), or class probabilities (S, M, C).

    The second value is the number of evaluations of the likelihood, with its gradient, that the chains took.
    """
    prior, given = prior_of(target, data, kernel), torch.from_numpy(labels(data)[0])
    if target.likelihood == "gaussian":
        values, used = posterior_draws(given.double(), prior, prior, draws, seed, progress, target.floor)
        return values.numpy(), used
    values, used = class_draws(given, prior, target.outputs, seed, progress)
    return values.float().numpy(), used


def posterior_draws(
    y: Tensor,
    mean: ProcessCovariances,
    raw: ProcessCovariances,
    draws: int,
    seed: int,
    progress: Progress = QUIET,
    floor: float = 0.0,
) -> tuple[Tensor, int]:
    """Draw y at the test points, (M, draws), given y (N,) at the training points; return the evaluations that it took, too."""
    root, inverse = square_root(raw.train)
    generator = torch_generator("cpu", seed, "infinite_width")
    counted = Counted(NoiseLikelihood(y, mean.train, root, floor))
    states = latent_states(counted, root.shape[1], lambda chains: softplus(chains @ root.T), generator, progress)
    rest = square_root(raw.test - (inverse.T @ raw.cross).T @ (inverse.T @ raw.cross))[0]
    predicted = []
    for number, state in enumerate(states):
        count = draws * (number + 1) // len(states) - draws * number // len(states)
        center, factor_of_mean = conditioned(y, mean, softplus(root @ state) + floor)
        mu = center[:, None] + factor_of_mean @ _normal((factor_of_mean.shape[1], count), generator)
        r = (raw.cross.T @ (inverse @ state))[:, None] + rest @ _normal((rest.shape[1], count), generator)
        predicted.append(mu + (softplus(r) + floor) * _normal(mu.shape, generator))
    return torch.cat(predicted, dim=1), counted.used


@dataclass(frozen=True)
class NoiseLikelihood:
    """log p(y | r) with μ integrated out, log N(y; 0, C + diag σ²), as a function of ξ: σ = softplus(r) + floor, r = F ξ; `root` is F (N, R)."""

    y: Tensor
    covariance: Tensor
    root: Tensor
    floor: float = 0.0

    def __call__(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """(K, R) -> values (K,) and gradients (K, R)."""
        r = coordinates @ self.root.T
        std = softplus(r) + self.floor
        factor, failed = torch.linalg.cholesky_ex(self.covariance + torch.diag_embed(std.square()))
        # Where C is singular and σ underflows there is no factor: the value is NaN, which the sampler rejects.
        failed = failed[:, None, None] > 0
        factor = torch.where(failed, torch.eye(len(self.y), dtype=factor.dtype), factor)
        inverse = torch.cholesky_inverse(factor)
        solved = inverse @ self.y
        value = -0.5 * (solved @ self.y) - factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        value = value - 0.5 * len(self.y) * math.log(2 * math.pi)
        by_variance = 0.5 * (solved.square() - inverse.diagonal(dim1=1, dim2=2))
        gradient = (by_variance * 2 * std * r.sigmoid()) @ self.root
        return torch.where(failed[:, 0, 0], torch.nan, value), gradient


def latent_states(
    likelihood: hmc.LogLikelihood,
    coordinates: int,
    observed: Callable[[Tensor], Tensor],
    generator: torch.Generator,
    progress: Progress = QUIET,
    *,
    states: int | None = None,
    jitter: bool = False,
) -> Tensor:
    """Sample coordinates that are N(0, I) a priori by K chains that start at draws of the prior; return all states, (S, R).

    R-hat is checked of what `observed` makes of the chains (K, T, R).
    """
    state = hmc.start(likelihood, _normal((CHAINS, coordinates), generator))
    # A step is cheap here, so burn-in begins with a large one, as in Hoffman & Gelman 2014, to leave the starting points.
    size = hmc.StepSize(10 * hmc.first_step(likelihood, state, 1.0, generator), target=0.8)
    kept: list[Tensor] = []
    count = BURN_IN + (states or STATES) // CHAINS
    with progress.track("The infinite-width limit", count, "states") as advance:
        for number in range(count):
            step = size.step if number < BURN_IN else size.adapted
            steps = hmc.steps_for(step, 1.0)
            if jitter:
                steps -= int(torch.randint(steps // 2 + 1, (), generator=generator))
            state, info = hmc.transition(
                likelihood, state, prior_variance=1.0, step=step, steps=steps, generator=generator
            )
            if number < BURN_IN:
                size.update(float(info.acceptance.mean()))
            else:
                kept.append(state.weights)
            advance(1)
    chains = torch.stack(kept, dim=1)
    rhat = split_rhat(observed(chains).flatten(2).numpy())
    if not rhat.max() <= LARGEST_RHAT:
        raise WorkError(f"the chains of the infinite-width limit have not converged: R-hat {rhat.max():.2f}")
    progress.say(f"Latent values at the training points: R-hat {np.median(rhat):.2f}, at most {rhat.max():.2f}")
    return chains.transpose(0, 1).reshape(-1, coordinates)


def conditioned(y: Tensor, prior: ProcessCovariances, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean (M,) and a root (M, M) of the covariance of Gaussian process regression of y (N,) with noise of std (N,)."""
    factor = torch.linalg.cholesky(prior.train + torch.diag(std.square()))
    cross = torch.linalg.solve_triangular(factor, prior.cross, upper=False)
    solved = torch.linalg.solve_triangular(factor, y[:, None], upper=False)[:, 0]
    return cross.T @ solved, square_root(prior.test - cross.T @ cross)[0]


def square_root(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return F (N, R) with F Fᵀ = covariance, and G, the transpose of its pseudo-inverse: r = F ξ, and E[ξ | r] = Gᵀ r.

    By eigenvectors without those of eigenvalue 0, so that equal inputs need no jitter.
    """
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > ROUNDING * values[-1].clamp(min=0)
    root = values[kept].sqrt()
    return vectors[:, kept] * root, vectors[:, kept] / root


def _normal(shape: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


CLASS_STATES = 600  # of all chains together: R-hat is checked at all training points and classes
PER_STATE = 2  # draws at the test points given one state


@dataclass(frozen=True)
class ClassLikelihood:
    """Σ log softmax(f)_y of latent values f = F ξ, as a function of ξ; `root` is F (N, R)."""

    labels: Tensor
    root: Tensor
    classes: int

    def __call__(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """(K, C R) -> values (K,) and gradients (K, C R)."""
        latent = coordinates.view(len(coordinates), self.classes, -1) @ self.root.T  # (K, C, N)
        logs = latent.log_softmax(dim=1)
        hits = torch.nn.functional.one_hot(self.labels, self.classes).T.to(latent.dtype)
        return (logs * hits).sum(dim=(1, 2)), ((hits - logs.exp()) @ self.root).flatten(1)


def class_draws(
    given: Tensor, prior: ProcessCovariances, classes: int, seed: int, progress: Progress = QUIET
) -> tuple[Tensor, int]:
    """Draw class probabilities at the test points, (S, M, C), given the classes (N,) of the training points; count evaluations."""
    root, inverse = square_root(prior.train)
    generator = torch_generator("cpu", seed, "infinite_width", "classes")
    likelihood = Counted(ClassLikelihood(given, root, classes))

    def at_training_points(chains: Tensor) -> Tensor:
        return torch.softmax(chains.view(*chains.shape[:2], classes, -1) @ root.T, dim=-2)

    states = latent_states(
        likelihood, classes * root.shape[1], at_training_points, generator, progress, states=CLASS_STATES, jitter=True
    )
    explained = inverse.T @ prior.cross  # (R, M)
    rest = square_root(prior.test - explained.T @ explained)[0]
    latent = states.view(len(states), classes, -1) @ explained  # (S, C, M)
    noise = _normal((PER_STATE, *latent.shape[:2], rest.shape[1]), generator) @ rest.T
    return torch.softmax((latent + noise).flatten(0, 1), dim=1).transpose(1, 2), likelihood.used


HOW = {
    "nngp": "a Gaussian process with the covariance of the prior's outputs",
    "ntk": "a Gaussian process with the covariance of the linear expansion at random weights",
}


def run_untrained(
    name: str, target: Target, data: TargetData, *, seed: int, out: Path, overrides: Sequence[str], progress: Progress
) -> Path:
    """Predict a target's test points, or find it done; return the path of the submission."""
    if overrides:
        raise InputError(f"'{name}' has no settings: {overrides[0]}", hint="Leave it out.")
    fingerprint = target.fingerprint(data.sha256)
    file = submission_in(out / f"{name}-{target.name}-seed-{seed}-{fingerprint}")
    if file.is_file():
        progress.say(f"{UNTRAINED_TITLES[name]}, {target.name}, seed {seed}: done before")
        return file
    start = time.monotonic()
    predicted, gradients = sample(target, data, DRAWS, seed, progress, name)
    about = About(
        task=target.name, target=fingerprint, data=data.sha256, method=name, title=UNTRAINED_TITLES[name], seed=seed,
        run={"method": {"name": name}}, budget=Budget(limit=None, used=gradients),
        seconds=round(time.monotonic() - start, 1), version=__version__,
        implied=Implied(temperature=target.temperature, prior_variance=target.prior_variance, how=HOW[name]),
        evidence={"predicted": hashlib.sha256(np.ascontiguousarray(predicted).tobytes()).hexdigest()},
    )  # fmt: skip
    values = np.asarray(predicted, np.float32)
    drawn = Submission(draws=values, about=about)
    write_submission(file, drawn if values.ndim == 2 else submission_of(values, target, about, seed))
    return file
