"""Chains on flat parameters with full-batch gradients: Hamiltonian Monte Carlo, the no-U-turn sampler, microcanonical Langevin.

Target: π(w) ∝ exp(ℓ(w)) N(w; 0, s² I), ℓ the summed log-likelihood, temperature 1. Letters: K chains, P parameters.

Hamiltonian Monte Carlo: H(w, p) = -ℓ(w) + |w|² / 2s² + |p|² / 2. A transition refreshes p ~ N(0, I), takes L leapfrog steps of
size ε and accepts with probability min(1, exp(H - H')). The trajectory L ε = π s / 2 is a quarter period of the prior's oscillator:
along directions that the data do not touch, one transition is one independent draw (Neal 2011; Izmailov et al. 2021). All chains
share one step size, which burn-in adapts to a target acceptance and which is then frozen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

LogLikelihood = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(K, P) weights -> the log-likelihood (K,) and its gradient (K, P), both new: the weights change in place afterwards.

One that has a method `gradient`, (K, P) -> (K, P), is asked for nothing else within a trajectory.
"""


@dataclass(frozen=True)
class State:
    """The chains: weights (K, P), their log-likelihood (K,) and its gradient (K, P)."""

    weights: Tensor
    value: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Transition:
    """One transition, each (K,): the acceptance probability, whether it was accepted, H' - H."""

    acceptance: Tensor
    accepted: Tensor
    energy_error: Tensor


def start(log_likelihood: LogLikelihood, weights: Tensor) -> State:
    return State(weights, *log_likelihood(weights))


def steps_for(step: float, prior_variance: float) -> int:
    """Return the leapfrog steps L = ⌈π s / 2ε⌉ of a quarter period."""
    return max(1, math.ceil(math.pi * math.sqrt(prior_variance) / (2 * step)))


def transition(
    log_likelihood: LogLikelihood,
    state: State,
    *,
    prior_variance: float,
    step: float,
    steps: int,
    generator: torch.Generator,
) -> tuple[State, Transition]:
    """Move all chains once.

    The energies of float32 weights are too large to subtract: the differences of likelihood, prior and kinetic energy
    are taken apart, the last two element by element, and summed in float64. A trajectory that leaves the finite
    numbers is rejected like any other."""
    weights = state.weights
    # Drawn on the processor, so that the chain does not depend on the device's own generator.
    momentum = torch.randn(weights.shape, generator=generator, dtype=weights.dtype).to(weights.device)
    uniform = torch.rand(len(weights), generator=generator, dtype=torch.float64).to(weights.device)
    proposal, end = leapfrog(log_likelihood, state, momentum, prior_variance, step, steps)
    likelihood = proposal.value.double() - state.value.double()
    prior = _squares(weights, proposal.weights) / (2 * prior_variance)
    kinetic = _squares(momentum, end) / 2
    gain = likelihood + prior + kinetic  # H - H'
    acceptance = gain.clamp(max=0).exp().nan_to_num(0.0)
    accepted = uniform < acceptance
    return _chosen(accepted, proposal, state), Transition(acceptance, accepted, -gain)


def _chosen(accepted: Tensor, proposal: State, state: State) -> State:
    """Return the proposal where it was accepted (K,), else the state."""
    rows = accepted[:, None]
    return State(
        torch.where(rows, proposal.weights, state.weights),
        torch.where(accepted, proposal.value, state.value),
        torch.where(rows, proposal.gradient, state.gradient),
    )


def leapfrog(
    log_likelihood: LogLikelihood, state: State, momentum: Tensor, prior_variance: float, step: float, steps: int
) -> tuple[State, Tensor]:
    """Follow Hamilton's equations for `steps` steps; return the state at the end and its momentum (K, P)."""
    weights = state.weights.clone()
    momentum = momentum + (step / 2) * (state.gradient - weights / prior_variance)
    inner = getattr(log_likelihood, "gradient", lambda weights: log_likelihood(weights)[1])
    for _ in range(steps - 1):
        weights.add_(momentum, alpha=step)
        # Two half steps of the momentum in one.
        momentum.add_(inner(weights), alpha=step).sub_(weights, alpha=step / prior_variance)
    weights.add_(momentum, alpha=step)
    value, gradient = log_likelihood(weights)
    momentum.add_(gradient, alpha=step / 2).sub_(weights, alpha=step / 2 / prior_variance)
    return State(weights, value, gradient), momentum


def _squares(before: Tensor, after: Tensor) -> Tensor:
    """Return |before|² - |after|² (K,), exact where the two are close."""
    return ((before - after).double() * (before + after).double()).sum(dim=1)


@dataclass
class StepSize:
    """Dual averaging of log ε towards a mean acceptance (Hoffman & Gelman 2014, section 3.2).

    Two of their constants differ, because here a transition has hundreds of steps and burn-in tens of transitions: the
    average is drawn towards `first` instead of ten times as much, and moves a quarter as fast (γ = 0.2, not 0.05).
    With theirs the step swings over two powers of ten before it settles. `step` is what burn-in uses next; `adapted`
    the smoothed value that is frozen afterwards.
    """

    first: float
    target: float = 0.7
    error: float = field(default=0.0)
    log_smoothed: float = field(default=0.0)
    count: int = field(default=0)

    @property
    def step(self) -> float:
        if self.count == 0:
            return self.first
        return self.first * math.exp(-math.sqrt(self.count) / 0.2 * self.error)

    @property
    def adapted(self) -> float:
        return math.exp(self.log_smoothed) if self.count else self.first

    def update(self, acceptance: float) -> None:
        self.count += 1
        share = 1 / (self.count + 10)
        self.error = (1 - share) * self.error + share * (self.target - acceptance)
        weight = self.count**-0.75
        self.log_smoothed = weight * math.log(self.step) + (1 - weight) * self.log_smoothed


def first_step(log_likelihood: LogLikelihood, state: State, prior_variance: float, generator: torch.Generator) -> float:
    """Return a step size whose single leapfrog step is accepted about half the time, by doubling or halving."""
    step, direction = math.sqrt(prior_variance) / 10 if math.isfinite(prior_variance) else 0.1, 0
    for _ in range(60):
        _, info = transition(
            log_likelihood, state, prior_variance=prior_variance, step=step, steps=1, generator=generator
        )
        wanted = 1 if float(info.acceptance.mean()) > 0.5 else -1
        if direction and wanted != direction:
            return step
        direction = wanted
        step *= 2.0**wanted
    return step


DIVERGED = 1000.0  # energy error above which a trajectory ends


@dataclass(frozen=True)
class TrajectoryPoint:
    """A point of a trajectory: the state, its momentum (1, P), and its energy."""

    state: State
    momentum: Tensor
    energy: float


@dataclass(frozen=True)
class Tree:
    """A stretch of a trajectory from `left` to `right`, with one of its points drawn by exp(-H) as `sample`.

    log_weight: of the sum of the weights, relative to the start. momenta: their sum. going: whether it may be continued.
    """

    left: TrajectoryPoint
    right: TrajectoryPoint
    sample: TrajectoryPoint
    log_weight: float
    momenta: Tensor
    going: bool
    acceptance: float
    steps: int


@dataclass(frozen=True)
class Nuts:
    """The no-U-turn sampler at one step size, for one chain (1, P): trajectories that end where they turn back.

    From a point the trajectory is doubled forwards or backwards in time at random, at most `depth` times, until its ends approach
    each other or a step diverges. The next state is drawn from its points with weights exp(-H), later halves being preferred.

    References:
        Hoffman & Gelman 2014, "The No-U-Turn Sampler"; Betancourt 2017, "A Conceptual Introduction to Hamiltonian Monte
        Carlo", appendix A, for the multinomial weights and the criterion of the summed momenta, which is also asked of each half
        with the next point of the other, as Stan does since 2.21.
    """

    log_likelihood: LogLikelihood
    prior_variance: float
    step: float
    generator: torch.Generator
    depth: int = 10

    def transition(self, state: State) -> tuple[State, float, int]:
        """Move the chain once; return its state, the mean acceptance probability and the number of leapfrog steps."""
        momentum = torch.randn(state.weights.shape, generator=self.generator, dtype=state.weights.dtype)
        start = self._point(state, momentum)
        tree = Tree(start, start, start, 0.0, momentum.double(), True, 0.0, 0)
        for depth in range(self.depth):
            forwards = self._uniform() < 0.5
            grown = self._grow(tree.right if forwards else tree.left, depth, forwards, start.energy)
            tree = self._joined(tree, grown, forwards, whole=True)
            if not tree.going:
                break
        return tree.sample.state, tree.acceptance / max(1, tree.steps), tree.steps

    def _grow(self, edge: TrajectoryPoint, depth: int, forwards: bool, energy: float) -> Tree:
        """Return the 2^depth points that follow `edge`; fewer where they end the trajectory."""
        if depth == 0:
            step = self.step if forwards else -self.step
            state, momentum = leapfrog(self.log_likelihood, edge.state, edge.momentum, self.prior_variance, step, 1)
            point = self._point(state, momentum)
            gain = energy - point.energy if math.isfinite(point.energy) else -math.inf
            return Tree(point, point, point, gain, momentum.double(), gain > -DIVERGED, math.exp(min(0.0, gain)), 1)
        first = self._grow(edge, depth - 1, forwards, energy)
        if not first.going:
            return first
        second = self._grow(first.right if forwards else first.left, depth - 1, forwards, energy)
        return self._joined(first, second, forwards, whole=False)

    def _joined(self, old: Tree, new: Tree, forwards: bool, *, whole: bool) -> Tree:
        """Join a stretch with the one that follows it; of the whole trajectory the newer half is preferred.

        A new stretch that may not be continued gives no sample, so that every point of the trajectory could have been its start.
        """
        first, last = (old, new) if forwards else (new, old)
        momenta = old.momenta + new.momenta
        total = _log_sum(old.log_weight, new.log_weight)
        chance = new.log_weight - (old.log_weight if whole else total)
        taken = new.going and self._uniform() < math.exp(min(0.0, chance))
        ahead = (
            _ahead(momenta, first.left, last.right)
            # Of independent Gaussians a whole period may end where it began without a turn between its ends.
            and _ahead(first.momenta + last.left.momentum.double(), first.left, last.left)
            and _ahead(last.momenta + first.right.momentum.double(), first.right, last.right)
        )
        return Tree(
            first.left, last.right, new.sample if taken else old.sample, total, momenta, new.going and ahead,
            old.acceptance + new.acceptance, old.steps + new.steps,
        )  # fmt: skip

    def _point(self, state: State, momentum: Tensor) -> TrajectoryPoint:
        squares = float(state.weights.double().square().sum()) / self.prior_variance
        squares += float(momentum.double().square().sum())
        return TrajectoryPoint(state, momentum, squares / 2 - float(state.value[0]))

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))


def _ahead(momenta: Tensor, left: TrajectoryPoint, right: TrajectoryPoint) -> bool:
    """Tell whether a stretch moves on at both of its ends, by the sum of its momenta (1, P)."""
    return all(float((momenta * end.momentum.double()).sum()) > 0 for end in (left, right))


def _log_sum(a: float, b: float) -> float:
    top = max(a, b)
    return top if top == -math.inf else top + math.log(math.exp(a - top) + math.exp(b - top))


ENERGY_VARIANCE = 5e-4  # of a step, per parameter
SCALE = 1.5  # energy variances that differ from it by more than this factor to the sixth power hardly count
MEMORY = 150  # steps that the adaptation remembers


@dataclass(frozen=True)
class ChainPoint:
    """Where the chains are: states, and unit velocities (K, P)."""

    state: State
    velocity: Tensor


def microcanonical_start(state: State, generator: torch.Generator) -> ChainPoint:
    """Return the chains at a state, with velocities in random directions."""
    drawn = torch.randn(state.weights.shape, generator=generator, dtype=state.weights.dtype)
    return ChainPoint(state, drawn / drawn.norm(dim=1, keepdim=True))


def microcanonical_step(
    log_likelihood: LogLikelihood, point: ChainPoint, *, size: float, length: float, generator: torch.Generator
) -> tuple[ChainPoint, Tensor]:
    """Move all chains once by microcanonical Langevin Monte Carlo under a flat prior; return them and the energy error (K,).

    The velocity u is a unit vector. With S = -log π, time step ε and noise η the chain follows

        dw = u dt,    du = -(1 - u uᵀ) ∇S / (P - 1) dt + η (1 - u uᵀ) dW,

    whose stationary distribution of w is π whatever η. Leapfrog steps are half a turn of u, w + ε u, half a turn of u; then u is
    partly refreshed, so that it forgets its direction over a length L. Without rejections the states are biased by the error of the
    step: the squared energy error per parameter and step is held at `ENERGY_VARIANCE`.

    References:
        Robnik, De Luca, Silverstein & Seljak 2023, "Microcanonical Hamiltonian Monte Carlo"; Robnik & Seljak 2023, "Fluctuation
        without dissipation", for the refreshment and the adaptation of the step.
    """
    before = point.state
    velocity, first = _turn(point.velocity, before.gradient, size / 2)
    after = start(log_likelihood, before.weights + size * velocity)
    velocity, second = _turn(velocity, after.gradient, size / 2)
    error = first + second - (after.value.double() - before.value.double())
    return ChainPoint(after, _refreshed(velocity, size / length, generator)), error


def microcanonical_transition(
    log_likelihood: LogLikelihood, state: State, *, size: float, steps: int, generator: torch.Generator
) -> tuple[State, Transition]:
    """Move all chains once by a microcanonical trajectory that is accepted or rejected, so that the states have no bias.

    The velocity is drawn anew, and the end is accepted with probability min(1, exp(-E)), E the energy error of the trajectory
    (Robnik, Cohn-Gordon & Seljak 2025, "Metropolis Adjusted Microcanonical Hamiltonian Monte Carlo").
    """
    point = microcanonical_start(state, generator)
    total = torch.zeros(len(state.weights), dtype=torch.float64, device=state.weights.device)
    for _ in range(steps):
        point, error = microcanonical_step(log_likelihood, point, size=size, length=math.inf, generator=generator)
        total += error
    acceptance = (-total).clamp(max=0).exp().nan_to_num(0.0)
    accepted = torch.rand(len(total), generator=generator, dtype=torch.float64).to(total.device) < acceptance
    return _chosen(accepted, point.state, state), Transition(acceptance, accepted, total)


def _turn(velocity: Tensor, slope: Tensor, time: float) -> tuple[Tensor, Tensor]:
    """Turn unit velocities towards the slope for a time; return them and the change of kinetic energy (K,), exact for a constant slope.

    With e the direction of the slope, δ = time |slope| / (P - 1) and c = e·u the velocity becomes
    (u + e (sinh δ + c (cosh δ - 1))) / (cosh δ + c sinh δ); written with exp(-δ), so that steep slopes do not overflow.
    """
    parameters = velocity.shape[1]
    norm = slope.norm(dim=1, keepdim=True)
    direction = slope / norm.clamp(min=torch.finfo(slope.dtype).tiny)
    delta = time * norm / (parameters - 1)
    along = (direction * velocity).sum(dim=1, keepdim=True)
    decay = (-delta).exp()
    turned = direction * (1 - decay) * (1 + decay + along * (1 - decay)) + 2 * decay * velocity
    turned = turned / turned.norm(dim=1, keepdim=True)
    grown = delta - math.log(2) + (1 + along + (1 - along) * decay.square()).log()
    return turned, (parameters - 1) * grown.squeeze(1).double()


def _refreshed(velocity: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Mix unit velocities with noise; `share` is the step as a part of the length over which they lose their direction."""
    noise = torch.randn(velocity.shape, generator=generator, dtype=velocity.dtype).to(velocity.device)
    mixed = velocity + math.sqrt(math.expm1(2 * share) / velocity.shape[1]) * noise
    refreshed: Tensor = mixed / mixed.norm(dim=1, keepdim=True)
    return refreshed


@dataclass
class VarianceStepSize:
    """The step at which the squared energy error is `ENERGY_VARIANCE` per parameter; it grows with the sixth power of the step."""

    size: float
    weighted: float = field(default=0.0)
    weights: float = field(default=0.0)

    def update(self, error: float, parameters: int) -> None:
        """Adapt the step to the energy error of one step."""
        if not math.isfinite(error):
            self.size *= 0.5
            self.weighted = self.weights = 0.0
            return
        excess = error**2 / (parameters * ENERGY_VARIANCE) + 1e-8
        weight = math.exp(-0.5 * (math.log(excess) / (6 * SCALE)) ** 2)
        decay = (MEMORY - 1) / (MEMORY + 1)
        self.weighted = decay * self.weighted + weight * excess / self.size**6
        self.weights = decay * self.weights + weight
        self.size = (self.weights / self.weighted) ** (1 / 6)
