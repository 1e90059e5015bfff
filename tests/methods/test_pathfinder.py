"""Pathfinder: its Gaussians and weights against closed forms, its draws against quadrature, and BlackJAX where it is installed."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from retinabench.fidelity.distances import total_variation
from retinabench.fidelity.problems import Problem
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.chains import Counted, Prior, Scaled
from retinabench.methods.pathfinder import climb, gaussian_at, pathfinder, smoothed

STDS = torch.logspace(0, -1, 10, dtype=torch.float64)
AXES = torch.linalg.qr(torch.randn(10, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
PRECISION = (AXES / STDS.square()) @ AXES.T
MEAN = torch.linspace(-1, 1, 10, dtype=torch.float64)


def gaussian(weights):
    """The correlated Gaussian about MEAN of condition 100, less its prior N(0, I)."""
    w = weights.double()
    slopes = -(w - MEAN) @ PRECISION
    return 0.5 * ((w - MEAN) * slopes).sum(dim=1) + 0.5 * w.square().sum(dim=1), (slopes + w).to(weights.dtype)


def draws(log_likelihood, prior, budget, seed=0):
    counted = Counted(log_likelihood)
    kept = pathfinder(prior, counted, budget, torch.Generator().manual_seed(seed), lambda _: None)
    assert counted.used <= budget
    return torch.cat(kept).double()


def test_the_end_of_a_path_to_the_mode_of_a_gaussian_is_that_gaussian():
    """23 gradients, seed 0: the mean to 1e-5 stds, and the whitened covariance to .2, since the line search of L-BFGS is not exact."""
    density = Scaled(Counted(gaussian), 1.0, torch.ones(10))
    start = torch.randn(10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = gaussian_at(*climb(density, start, 200), 1.0)
    inner = torch.eye(10, dtype=torch.float64) + found.q @ (found.factor @ found.factor.T - torch.eye(10)) @ found.q.T
    covariance = found.scale[:, None] * inner * found.scale
    assert torch.allclose((found.mean - MEAN) @ AXES / STDS, torch.zeros(10, dtype=torch.float64), atol=1e-4)
    root = AXES / STDS
    assert torch.allclose(root.T @ covariance @ root, torch.eye(10, dtype=torch.float64), atol=0.25)
    some, logs = found.draw(20_000, torch.Generator().manual_seed(0))
    law = multivariate_normal(found.mean.numpy(), covariance.numpy())
    assert logs.numpy() == pytest.approx(law.logpdf(some.numpy()), abs=1e-6)
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), (some - found.mean).T, upper=False)
    assert torch.allclose(whitened.cov(), torch.eye(10, dtype=torch.float64), atol=5 * (2 / 20_000) ** 0.5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draws_of_a_correlated_gaussian_have_its_mean_and_covariance(seed):
    """Some 450 draws of their own, by importance: four standard errors of the largest of 10 means and 55 covariances are .19 and .27."""
    z = (draws(gaussian, Prior(10, 1.0), 1000, seed) - MEAN) @ AXES / STDS
    assert z.mean(dim=0).abs().max() < 0.19
    assert (z.T.cov() - torch.eye(10)).abs().max() < 0.27


@pytest.mark.parametrize(
    ("name", "budget", "most"), [("banana", 1000, 0.1), ("logistic", 100, 0.05), ("logistic", 1000, 0.02)]
)
def test_what_few_weights_predict_is_that_of_quadrature(name, budget, most):
    """Total variation, seed 0: MAP has .15 on the bent ridge, and .036 and .014 on the logistic regression."""
    target = TARGETS[name]
    data = load(target)
    density = Density.of(target, data)
    found = density.predict(draws(density, Prior(target.parameters, target.prior_variance), budget).float())
    assert total_variation(found.mean(dim=0).numpy(), read_reference(target, data.sha256).probs).mean() < most


def test_a_density_without_a_slope_gives_its_start():
    assert (
        len(draws(lambda w: (torch.full((len(w),), torch.nan), torch.full_like(w, torch.nan)), Prior(3, 1.0), 60)) == 1
    )


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
def test_smoothed_weights_and_k_are_those_of_arviz(scale):
    az = pytest.importorskip("arviz")
    logs = scale * np.random.default_rng(0).standard_normal(200)
    expected, k = az.psislw(logs.copy())
    weights, ours = smoothed(torch.from_numpy(logs))
    assert ours == pytest.approx(float(k), abs=1e-6)
    assert weights.numpy() == pytest.approx(np.exp(expected), rel=1e-6)


def test_it_is_nearer_than_blackjax_s_of_the_same_budget():
    """Total variation on an MLP head, mean of three seeds; four paths of 222, their line searches not counted, by importance."""
    jax = pytest.importorskip("jax")
    multi = pytest.importorskip("blackjax.vi.multipathfinder")
    target = TARGETS["idrid-head-mlp"]
    problem, data = Problem(target), load(target)
    density, truth = Density.of(target, data), read_reference(target, data.sha256).probs
    ours, theirs = [], []
    for seed in range(3):
        first, second = jax.random.split(jax.random.key(seed))
        starts = target.prior_variance**0.5 * jax.random.normal(first, (4, target.parameters))
        state, _ = multi.multi_approximate(second, lambda w: problem.log_density(w, jax.numpy), starts, 6, maxiter=30)
        logs = np.asarray(multi.psis_weights(state)[0], np.float64)
        probs = problem.predict(np.asarray(state.samples).reshape(len(logs), -1))
        theirs.append(total_variation(np.tensordot(np.exp(logs), probs, 1) / np.exp(logs).sum(), truth).mean())
        own = draws(density, Prior(target.parameters, target.prior_variance), 1000, seed).float()
        ours.append(total_variation(density.predict(own).mean(dim=0).numpy(), truth).mean())
    assert np.mean(ours) < np.mean(theirs)
