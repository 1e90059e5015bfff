"""Evaluations are counted per chain, and starts are draws of the prior."""

import torch

from retinabench.fidelity.submissions.untrained.counted import Counted, prior_draws
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.registry import TARGETS

TARGET = TARGETS["drawn-head"]


def test_each_chain_of_an_evaluation_counts_once():
    density = Density.of(TARGET, load(TARGET))
    counted = Counted(density)
    weights = prior_draws(TARGET, 3, torch.Generator().manual_seed(0))
    value, gradient = counted(weights)
    assert counted.used == 3
    assert torch.allclose(counted.gradient(weights), gradient, atol=1e-4)  # sums in another order
    assert counted.used == 6
    assert torch.equal(value, density(weights)[0])


def test_the_starts_have_the_variance_of_the_prior():
    """1,000 draws of 45 weights: the standard error of the variance is .7 % of it."""
    draws = prior_draws(TARGET, 1000, torch.Generator().manual_seed(1))
    assert draws.shape == (1000, TARGET.parameters)
    assert abs(float(draws.var()) / TARGET.prior_variance - 1) < 0.03
