"""Samplers without a rejection per state: how many particles a budget pays for, and what they keep."""

import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.fidelity.submissions.untrained import approximate_samplers
from retinabench.fidelity.submissions.untrained.counted import Counted
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.registry import TARGETS

LOGISTIC = TARGETS["logistic"]


def run(name, target, density, budget):
    counted = Counted(density)
    generator = torch.Generator().manual_seed(0)
    with QUIET.track("sampler", budget, unit="gradients") as advance:
        return approximate_samplers.SAMPLERS[name](target, counted, budget, generator, advance), counted.used


@pytest.mark.parametrize(
    ("name", "budget", "particles"),
    [("smc", 100, 5), ("smc", 2000, 20), ("svgd", 1000, 20), ("svgd", 5000, 50)],
)
def test_particles_are_a_stated_share_of_the_budget(name, budget, particles):
    kept, used = run(name, LOGISTIC, Density.of(LOGISTIC, load(LOGISTIC)), budget)
    assert {len(weights) for weights in kept} == {particles}
    assert 0.8 * budget <= used <= budget


def test_mclmc_keeps_a_state_of_every_gradient_after_the_first_three_tenths():
    kept, used = run("mclmc", LOGISTIC, Density.of(LOGISTIC, load(LOGISTIC)), 200)
    assert (len(kept), used) == (140, 200)


def test_mclmc_refuses_a_single_weight_which_has_no_direction_to_turn_to():
    single = LOGISTIC.model_copy(update={"network": "linear"})
    object.__setattr__(single, "parameters", 1)
    with pytest.raises(InputError, match="at least two weights"):
        run("mclmc", single, None, 100)
