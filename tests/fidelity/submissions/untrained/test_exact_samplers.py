"""One chain of the reference's samplers: what is dropped, how long a trajectory is, and a step that cannot be found."""

import pytest
import torch

from retinabench.core.progress import QUIET
from retinabench.fidelity.submissions.untrained import exact_samplers
from retinabench.fidelity.submissions.untrained.counted import Counted
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.registry import TARGETS

LOGISTIC = TARGETS["logistic"]


def run(name, density, budget):
    counted = Counted(density)
    generator = torch.Generator().manual_seed(0)
    with QUIET.track("chain", budget, unit="gradients") as advance:
        return exact_samplers.SAMPLERS[name](LOGISTIC, counted, budget, generator, advance), counted.used


@pytest.mark.parametrize("name", exact_samplers.SAMPLERS)
def test_the_first_three_tenths_are_dropped_and_no_trajectory_takes_more_than_a_twentieth(name):
    budget = 400
    kept, used = run(name, Density.of(LOGISTIC, load(LOGISTIC)), budget)
    assert used == budget
    assert len(kept) >= 0.7 * budget / (budget / 20) - 1
    assert len(kept) <= 0.7 * budget


@pytest.mark.parametrize("name", exact_samplers.SAMPLERS)
def test_a_step_that_the_budget_does_not_find_leaves_the_start(name):
    """A gradient that the values contradict: every trial step is rejected, and each halving takes a gradient."""

    def contradicted(weights):
        return torch.zeros(len(weights)), torch.full_like(weights, 1e30)

    kept, used = run(name, contradicted, 20)
    assert used >= 20
    assert len(kept) == 1
