"""Evaluations are counted per chain, starts are draws of the prior, and weights of unlike scales are sampled alike."""

import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods import chains
from retinabench.methods.chains import Counted, Prior

TARGET = TARGETS["drawn-head"]


def test_each_chain_of_an_evaluation_counts_once():
    density = Density.of(TARGET, load(TARGET))
    counted = Counted(density)
    weights = Prior(TARGET.parameters, TARGET.prior_variance).starts(3, torch.Generator().manual_seed(0))
    value, gradient = counted(weights)
    assert counted.used == 3
    assert torch.allclose(counted.gradient(weights), gradient, atol=1e-4)  # sums in another order
    assert counted.used == 6
    assert torch.equal(value, density(weights)[0])


def test_the_starts_have_the_variance_of_the_prior():
    """1,000 draws of 45 weights: the standard error of the variance is .7 % of it."""
    draws = Prior(TARGET.parameters, TARGET.prior_variance).starts(1000, torch.Generator().manual_seed(1))
    assert draws.shape == (1000, TARGET.parameters)
    assert abs(float(draws.var()) / TARGET.prior_variance - 1) < 0.03


LOGISTIC = TARGETS["logistic"]


PRIOR = Prior(LOGISTIC.parameters, LOGISTIC.prior_variance)


def run(name, budget, density=None, prior=PRIOR):
    counted = Counted(density or Density.of(LOGISTIC, load(LOGISTIC)))
    generator = torch.Generator().manual_seed(0)
    with QUIET.track("chain", budget, unit="gradients") as advance:
        return chains.SAMPLERS[name](prior, counted, budget, generator, advance), counted.used


@pytest.mark.parametrize("name", chains.EXACT)
def test_the_first_three_tenths_are_dropped_and_no_trajectory_takes_more_than_a_twentieth(name):
    budget = 400
    kept, used = run(name, budget)
    assert used == budget
    assert len(kept) >= 0.7 * budget / (budget / 20) - 1
    assert len(kept) <= 0.7 * budget


@pytest.mark.parametrize("name", chains.EXACT)
def test_a_step_that_the_budget_does_not_find_leaves_the_start(name):
    """A gradient that the values contradict: every trial step is rejected, and each halving takes a gradient."""

    def contradicted(weights):
        return torch.zeros(len(weights)), torch.full_like(weights, 1e30)

    kept, used = run(name, 20, contradicted)
    assert used >= 20
    assert len(kept) == 1


def test_mclmc_keeps_a_state_of_every_gradient_after_the_first_three_tenths():
    kept, used = run("mclmc", 200)
    assert (len(kept), used) == (140, 200)


def test_mclmc_refuses_a_single_weight_which_has_no_direction_to_turn_to():
    with pytest.raises(InputError, match="at least two weights"):
        run("mclmc", 100, prior=Prior(1, 1.0))


STDS = torch.logspace(0, -2, 20)  # a Gaussian of condition 1e4
AXES = {
    "independent": torch.eye(20),
    "correlated": torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(1)))[0],
}


def narrow(axes):
    """Return the Gaussian along axes, less its prior N(0, I)."""
    precision = (axes.double() / STDS.double().square()) @ axes.double().T

    def log_likelihood(weights):
        slopes = weights.double() - weights.double() @ precision
        return 0.5 * (weights * slopes).sum(dim=1), slopes.to(weights.dtype)

    return log_likelihood


def test_scales_of_a_gaussian_are_exact_wherever_the_trace_is():
    weights = 3 + torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    trace = [(w, narrow(AXES["independent"])(w)[1]) for w in weights.split(1)]
    assert torch.allclose(chains.scale_of(trace, 1.0), STDS, rtol=1e-3)
    assert chains.scale_of(trace[:3], 1.0) is None


def test_a_matrix_of_scales_is_the_root_of_a_gaussian_s_covariance():
    axes = AXES["correlated"]
    weights = 3 + torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    found = chains.scale_of([(w, narrow(axes)(w)[1]) for w in weights.split(1)], 1.0)
    within = (axes / STDS).T @ found  # orthogonal, but for the rounding of slopes in single precision
    assert torch.allclose(within @ within.T, torch.eye(20), atol=0.005)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", chains.SAMPLERS)
def test_a_gaussian_of_condition_ten_thousand_is_known_from_two_thousand_gradients(name, axes):
    """With one step for all weights, the mean errors were .2 stds and more with five times the gradients."""
    kept, used = run(name, 2000, narrow(AXES[axes]), Prior(20, 1.0))
    draws = torch.cat(kept) @ AXES[axes]
    assert used <= 2000
    assert float((draws.mean(dim=0) / STDS).abs().mean()) < 0.12
    assert float((draws.std(dim=0) / STDS).log().abs().mean()) < 0.1
