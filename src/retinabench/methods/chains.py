"""Chains that adapt themselves within a budget of evaluations: Hamiltonian Monte Carlo, NUTS, microcanonical Langevin and its ensembles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from retinabench.core.errors import InputError
from retinabench.methods import hmc
from retinabench.methods.hmc import Nuts

BURN_IN = 0.3  # share of a chain's gradients


@dataclass
class Counted:
    """A log-likelihood that counts its evaluations, of all training points by one chain each; a trace keeps weights and gradients."""

    log_likelihood: hmc.LogLikelihood
    used: int = 0
    trace: list[tuple[Tensor, Tensor]] | None = None

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        value, gradient = self.log_likelihood(weights)
        self._keep(weights, gradient)
        return value, gradient

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> gradients (K, P); cheaper for some densities in closed form."""
        if (alone := getattr(self.log_likelihood, "gradient", None)) is None:
            return self(weights)[1]
        gradient: Tensor = alone(weights)
        self._keep(weights, gradient)
        return gradient

    def _keep(self, weights: Tensor, gradient: Tensor) -> None:
        self.used += len(weights)
        if self.trace is not None:
            self.trace.append((weights.clone(), gradient.clone()))


@dataclass(frozen=True)
class Scaled:
    """log π(w) up to a constant as a function of z, w = z · scale, as `hmc` asks for a log-likelihood: the prior of z is flat."""

    counted: Counted
    prior_variance: float
    scale: Tensor  # (P,), or symmetric (P, P)

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        weights = scaled(z, self.scale)
        value, gradient = self.counted(weights)
        prior = weights.double().square().sum(dim=1) / (2 * self.prior_variance)
        return value.double() - prior, scaled(gradient - weights / self.prior_variance, self.scale)

    def gradient(self, z: Tensor) -> Tensor:
        """(K, P) -> (K, P)."""
        weights = scaled(z, self.scale)
        return scaled(self.counted.gradient(weights) - weights / self.prior_variance, self.scale)


def scaled(values: Tensor, scale: Tensor) -> Tensor:
    """Return values (..., P) times scales (P,), or a matrix (P, P) of them."""
    return values * scale if scale.ndim == 1 else values @ scale


def unscaled(values: Tensor, scale: Tensor) -> Tensor:
    return values / scale if scale.ndim == 1 else values @ torch.linalg.inv(scale.double()).to(values.dtype)


FLAT = math.inf  # the variance of a flat prior
LEAST_TRACE = 20  # evaluations from which scales are estimated
DENSE, EACH = 64, 5  # most weights of a matrix of scales, and fewest evaluations for each of them
SHRINKAGE = 1e-10  # of its covariances towards their diagonals: narrow directions hold a small part of the variance of each weight


def _later(trace: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the weights (T, P) of the later half of a trace."""
    return torch.cat([weights for weights, _ in trace[len(trace) // 2 :]])


def scale_of(trace: Sequence[tuple[Tensor, Tensor]], prior_variance: float) -> Tensor | None:
    """Return scales of the weights from the later half of a trace; None from fewer than `LEAST_TRACE`.

    Scales (P,) are √(std of w / std of ∇ log π); the matrix (P, P), of few weights and many evaluations, is the root of the Σ with
    Σ cov(∇ log π) Σ = cov(w). They are exact for Gaussians, independent ones and all, however few the points are and wherever they lie on
    the way to the mode. For others a scale lies between the std and the conditional std of a weight (Seyboldt, Carlson & Carpenter 2025,
    "Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence").
    """
    if len(trace) < LEAST_TRACE // 2:
        return None
    weights = _later(trace)
    slopes = torch.cat([gradient for _, gradient in trace[len(trace) // 2 :]]) - weights / prior_variance
    finite = slopes.isfinite().all(dim=1) & weights.isfinite().all(dim=1)
    if int(finite.sum()) < LEAST_TRACE // 4:
        return None
    w, g = weights[finite].double(), slopes[finite].double()
    found, most = (w.std(dim=0) / g.std(dim=0)).sqrt(), math.sqrt(prior_variance)
    scale = found.nan_to_num(1.0).clamp(1e-6 * most, most)
    if not _is_dense(w.shape[1], len(w)) or not (found.isfinite() & (found > 1e-6 * most)).all():
        return scale.to(weights.dtype)
    cov_w, cov_g = (one.T.cov() for one in (w / scale, g * scale))
    cov_w, cov_g = (one + SHRINKAGE * one.diag().diag() for one in (cov_w, cov_g))
    root, inverse = _power(cov_g, 0.5), _power(cov_g, -0.5)
    between = inverse @ _power(root @ cov_w @ root, 0.5) @ inverse
    return _power(scale[:, None] * between * scale, 0.5, most).to(weights.dtype)


def _is_dense(parameters: int, evaluations: float) -> bool:
    """Tell whether a matrix of scales is estimated from this number of evaluations."""
    return 1 < parameters <= DENSE and evaluations >= EACH * parameters


def updates_of(parameters: int, budget: int) -> list[float]:
    """Return after how many gradients the scales are estimated: a matrix several times, from the points of ever better chains."""
    shares = UPDATES if _is_dense(parameters, ADAPTATION * budget / 2) else (ADAPTATION,)
    return [share * budget for share in shares if ADAPTATION * budget >= LEAST_TRACE]


def _power(matrix: Tensor, exponent: float, most: float = math.inf) -> Tensor:
    """Return a power of a symmetric matrix, its eigenvalues at most `most`."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    values = values.clamp(min=1e-14 * float(values.max())).pow(exponent).clamp(max=most)
    found: Tensor = (vectors * values) @ vectors.T
    return found


Advance = Callable[[int], None]
Starts = Callable[[int, torch.Generator], Tensor]  # number K of chains -> where they start, (K, P)


@dataclass(frozen=True)
class Prior:
    """N(0, s² I) on P weights. Chains start at draws of it, or where `start` says."""

    parameters: int
    variance: float
    start: Starts | None = None

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Return (count, P)."""
        if self.start is not None:
            return self.start(count, generator)
        return math.sqrt(self.variance) * torch.randn(count, self.parameters, generator=generator)


Sampler = Callable[[Prior, Counted, int, torch.Generator, Advance], list[Tensor]]
"""(prior, log-likelihood, budget, source of noise, what counts gradients) -> kept states, (K, P) each."""


TRAJECTORIES = 20  # of the whole budget, at least
ADAPTATION = 0.15  # share of a chain's gradients after which the scales are estimated
UPDATES = (0.05, 0.1, 0.15, 0.2)  # the same of a matrix


@dataclass
class _Chain:
    """A chain under way, in coordinates z = w / scale: its density, state, step size and source of randomness, and its budget of gradients."""

    prior: Prior
    counted: Counted
    state: hmc.State
    size: hmc.StepSize
    generator: torch.Generator
    budget: int
    density: hmc.LogLikelihood
    prior_variance: float
    scale: Tensor
    period: float = math.nan  # variance of the slowest direction, whose quarter period is a trajectory of `hmc`

    @property
    def adapting(self) -> bool:
        return self.counted.used < BURN_IN * self.budget

    @property
    def step(self) -> float:
        return self.size.step if self.adapting else self.size.adapted

    @property
    def weights(self) -> Tensor:
        return scaled(self.state.weights, self.scale)

    def rescale(self) -> None:
        """Estimate the scales of the weights from the gradients so far, and search the step again."""
        trace = self.counted.trace or []
        if (scale := scale_of(trace, self.prior.variance)) is None:
            return
        largest = float(scale.max() if scale.ndim == 1 else torch.linalg.matrix_norm(scale, 2))
        widest = self.prior.variance / largest**2  # the prior bounds the width of the posterior
        self.period = min(max(1.0, float(unscaled(_later(trace), scale).var(dim=0).max())), widest)
        self.density = Scaled(self.counted, self.prior.variance, scale)
        self.state = hmc.start(self.density, unscaled(self.weights, scale))
        self.scale, self.prior_variance = scale, FLAT
        self.size = hmc.StepSize(hmc.first_step(self.density, self.state, FLAT, self.generator) / 2, 0.8)


def _hmc(chain: _Chain, left: int) -> float:
    """Move the chain by a trajectory of at most `left` gradients; return the acceptance probability."""
    steps = min(hmc.steps_for(chain.step, chain.period), max(1, chain.budget // TRAJECTORIES), left)
    chain.state, info = hmc.transition(
        chain.density, chain.state, prior_variance=chain.prior_variance, step=chain.step, steps=steps,
        generator=chain.generator,
    )  # fmt: skip
    return float(info.acceptance.mean())


def _nuts(chain: _Chain, left: int) -> float:
    depth = int(math.log2(min(left + 1, 1 + max(1, chain.budget // TRAJECTORIES))))
    sampler = Nuts(chain.density, chain.prior_variance, chain.step, chain.generator, max(1, min(10, depth)))
    chain.state, acceptance, _ = sampler.transition(chain.state)
    return acceptance


def _chain(
    transition: Callable[[_Chain, int], float],
    prior: Prior,
    counted: Counted,
    budget: int,
    generator: torch.Generator,
    advance: Advance,
) -> list[Tensor]:
    """Return the states of one chain after burn-in; its start alone where the search of the first step took the budget."""
    variance, state = prior.variance, hmc.start(counted, prior.starts(1, generator))
    size = hmc.StepSize(hmc.first_step(counted, state, variance, generator) / 4, 0.8)
    scale = torch.ones(prior.parameters)
    chain = _Chain(prior, counted, state, size, generator, budget, counted, variance, scale, variance)
    updates = updates_of(prior.parameters, budget)
    counted.trace = [] if updates else None
    kept: list[Tensor] = []
    told = 0
    while counted.used < budget:
        adapting = chain.adapting
        acceptance = transition(chain, budget - counted.used)
        if adapting:
            chain.size.update(acceptance)
        if updates and counted.used >= updates[0]:
            chain.rescale()
            updates = [one for one in updates if one > counted.used]
            counted.trace = counted.trace if updates else None
        if not adapting:
            kept.append(chain.weights)
        advance(counted.used - told)
        told = counted.used
    return kept or [chain.weights]


EXACT: dict[str, Sampler] = {"hmc": partial(_chain, _hmc), "nuts": partial(_chain, _nuts)}
FEWEST = 5  # states that a variance is estimated from
ADJUSTED_ACCEPTANCE = 0.9  # of `mams`
FIRST = 0.05  # step of a microcanonical chain, as a part of the length of draws


def _mclmc(
    prior: Prior,
    counted: Counted,
    budget: int,
    generator: torch.Generator,
    advance: Advance,
    start: Tensor | None = None,
    *,
    adjusted: bool = False,
) -> list[Tensor]:
    """Return the states of chains (K, P) after burn-in; adjusted ones are trajectories that are accepted or rejected."""
    if prior.parameters < 2:
        hint = "Run 'hmc' or 'nuts', which take any number."
        raise InputError("microcanonical chains need at least two weights, and there is one", hint=hint)
    weights = prior.starts(1, generator) if start is None else start
    chains, before = len(weights), counted.used
    end_of_burn_in = before + BURN_IN * (budget - before)
    updates = [before + one for one in updates_of(prior.parameters, budget - before)]
    adaptation = max(updates, default=before + ADAPTATION * (budget - before))
    counted.trace = [] if updates else None
    scale = torch.full((prior.parameters,), math.sqrt(prior.variance))
    point, density = _microcanonical_start(prior, counted, weights, scale, generator)
    length = math.sqrt(prior.parameters)  # of draws of z
    size = hmc.VarianceStepSize(FIRST * length)
    adjustment: hmc.StepSize | None = None
    burned: list[Tensor] = []
    kept: list[Tensor] = []
    while counted.used + chains <= budget:
        burning, told = counted.used < end_of_burn_in, counted.used
        if adjustment is None:
            moved, errors = hmc.microcanonical_step(density, point, size=size.size, length=length, generator=generator)
            error = float(errors.square().mean().sqrt())
            point = moved if math.isfinite(error) else hmc.microcanonical_start(point.state, generator)
            if burning:
                size.update(error, prior.parameters)
                burned.append(point.state.weights)
        else:
            step = adjustment.step if burning else adjustment.adapted
            wanted = math.ceil(2 * length / step * float(torch.rand((), generator=generator)))
            most = min((budget - counted.used) // chains, max(1, budget // TRAJECTORIES // chains))
            steps = max(1, min(wanted, most))
            state, info = hmc.microcanonical_transition(
                density, point.state, size=step, steps=steps, generator=generator
            )
            point = hmc.ChainPoint(state, point.velocity)
            if burning:
                adjustment.update(float(info.acceptance.mean()))
        if not burning:
            kept.append(scaled(point.state.weights, scale))
        if updates and counted.used >= updates[0]:
            trace, updates = counted.trace or [], [one for one in updates if one > counted.used]
            counted.trace = trace if updates else None
            if (found := scale_of(trace, prior.variance)) is not None:
                weights = scaled(point.state.weights, scale)
                point, density = _microcanonical_start(prior, counted, weights, found, generator)
                scale, burned, size = found, [], hmc.VarianceStepSize(FIRST * length)
        elif adjusted and adjustment is None and counted.used >= (adaptation + end_of_burn_in) / 2:
            length, adjustment = max(length, _length(burned)), hmc.StepSize(size.size, ADJUSTED_ACCEPTANCE)
        elif not kept and counted.used >= end_of_burn_in and len(burned) > FEWEST and not adjusted:
            length = max(_length(burned), 2 * size.size)
        advance(counted.used - told)
    return kept or [scaled(point.state.weights, scale)]


def _length(states: list[Tensor]) -> float:
    """Return the root of the summed variances of the later half of the states."""
    return float(torch.cat(states[len(states) // 2 :]).var(dim=0).sum().sqrt())


def _microcanonical_start(
    prior: Prior, counted: Counted, weights: Tensor, scale: Tensor, generator: torch.Generator
) -> tuple[hmc.ChainPoint, Scaled]:
    density = Scaled(counted, prior.variance, scale)
    return hmc.microcanonical_start(hmc.start(density, unscaled(weights, scale)), generator), density


OPTIMISED = 0.3  # of the budget of `mile`, before its chains start
MEMBERS = (5, 8)  # fewest and most
RATE = 0.1  # of its optimisation, in stds of the prior
NETWORK_RATE = 0.02  # where it starts from networks


def _mile(prior: Prior, counted: Counted, budget: int, generator: torch.Generator, advance: Advance) -> list[Tensor]:
    """Return the states of microcanonical chains that start where an ensemble's members were optimised to."""
    members = int(np.clip(budget // 250, *MEMBERS))
    weights, steps = prior.starts(members, generator), int(OPTIMISED * budget) // members
    rate = RATE * math.sqrt(prior.variance) if prior.start is None else NETWORK_RATE
    optimizer = torch.optim.Adam([weights], lr=rate)
    for number in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * number / steps)) / 2
        weights.grad = weights / prior.variance - counted.gradient(weights)
        optimizer.step()
        advance(members)
    return _mclmc(prior, counted, budget, generator, advance, weights)


SAMPLERS: dict[str, Sampler] = {
    **EXACT, "mclmc": _mclmc, "mams": partial(_mclmc, adjusted=True), "mile": _mile,
}  # fmt: skip
