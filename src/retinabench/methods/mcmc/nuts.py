"""The no-U-turn sampler on flat parameters: trajectories that end where they turn back, so that no length is chosen.

From a point the trajectory is doubled forwards or backwards in time at random until its ends approach each other or a step
diverges. The next state is drawn from the points of the trajectory with weights exp(-H), later halves being preferred. One chain;
the potential and the leapfrog steps are those of `hmc.py`.

Letters: P parameters; points are `hmc.State` of (1, P).

References:
    Hoffman & Gelman 2014, "The No-U-Turn Sampler"; Betancourt 2017, "A Conceptual Introduction to Hamiltonian Monte Carlo", appendix A, for
    the multinomial weights and the criterion of the summed momenta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from retinabench.methods.mcmc import hmc

DIVERGED = 1000.0  # energy error above which a trajectory ends


@dataclass(frozen=True)
class TrajectoryPoint:
    """A point of a trajectory: the state, its momentum (1, P), and its energy."""

    state: hmc.State
    momentum: Tensor
    energy: float


@dataclass(frozen=True)
class Tree:
    """A stretch of a trajectory.

    Args:
        left: Its first point in time.
        right: Its last point in time.
        sample: One of its points, drawn with weights exp(-H).
        log_weight: Logarithm of the sum of the weights, relative to the start.
        momenta: Sum of the momenta of all points.
        going: Whether it may be continued: it does not turn back, and no step diverged.
        acceptance: Sum of the acceptance probabilities of the points.
        steps: Leapfrog steps.
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
    """The sampler at one step size.

    Args:
        log_likelihood: Weights (1, P) -> log-likelihood and its gradient.
        prior_variance: s² of the prior N(0, s² I).
        step: Step size.
        generator: Source of all draws.
        depth: Greatest number of doublings.
    """

    log_likelihood: hmc.LogLikelihood
    prior_variance: float
    step: float
    generator: torch.Generator
    depth: int = 10

    def transition(self, state: hmc.State) -> tuple[hmc.State, float, int]:
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
            return self._leaf(edge, forwards, energy)
        first = self._grow(edge, depth - 1, forwards, energy)
        if not first.going:
            return first
        second = self._grow(first.right if forwards else first.left, depth - 1, forwards, energy)
        return self._joined(first, second, forwards, whole=False)

    def _leaf(self, edge: TrajectoryPoint, forwards: bool, energy: float) -> Tree:
        step = self.step if forwards else -self.step
        state, momentum = hmc.leapfrog(
            self.log_likelihood, edge.state, edge.momentum, self.prior_variance, step, 1
        )
        point = self._point(state, momentum)
        gain = energy - point.energy if math.isfinite(point.energy) else -math.inf
        return Tree(
            point, point, point, gain, momentum.double(), gain > -DIVERGED, math.exp(min(0.0, gain)), 1
        )

    def _joined(self, old: Tree, new: Tree, forwards: bool, *, whole: bool) -> Tree:
        """Join a stretch with the one that follows it; of the whole trajectory the newer half is preferred.

        A new stretch that may not be continued gives no sample, so that every point of the trajectory could have been its start.
        """
        left, right = (old.left, new.right) if forwards else (new.left, old.right)
        momenta = old.momenta + new.momenta
        total = _log_sum(old.log_weight, new.log_weight)
        chance = new.log_weight - (old.log_weight if whole else total)
        taken = new.going and self._uniform() < math.exp(min(0.0, chance))
        ahead = all(float((momenta * end.momentum.double()).sum()) > 0 for end in (left, right))
        return Tree(
            left, right, new.sample if taken else old.sample, total, momenta, new.going and ahead,
            old.acceptance + new.acceptance, old.steps + new.steps,
        )  # fmt: skip

    def _point(self, state: hmc.State, momentum: Tensor) -> TrajectoryPoint:
        squares = float(state.weights.double().square().sum()) / self.prior_variance
        squares += float(momentum.double().square().sum())
        return TrajectoryPoint(state, momentum, squares / 2 - float(state.value[0]))

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))


def _log_sum(a: float, b: float) -> float:
    top = max(a, b)
    return top if top == -math.inf else top + math.log(math.exp(a - top) + math.exp(b - top))
