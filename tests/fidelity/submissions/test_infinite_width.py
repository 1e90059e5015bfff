"""Covariances of infinitely wide networks against wide random ones, and in closed form."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.functional import softplus

from retinabench.core.errors import InputError, WorkError
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.submissions import infinite_width
from retinabench.fidelity.submissions.infinite_width import conditioned, posterior_draws, relu_covariance, square_root
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import Budget, read_submission
from retinabench.fidelity.targets.data import labels, load
from retinabench.fidelity.targets.target import TARGETS
from retinabench.models.networks.small import MLP
from support.helpers import generator
from support.tiny_target import TEST, regression_target

VARIANCE = 1 / 30


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(("width", "networks"), [(50, 40_000), (1000, 1_000)])
def test_the_kernel_is_the_covariance_of_random_networks(width, networks):
    """Five standard errors, seed 1: a sample covariance of S Gaussian draws has variance (k_ii k_jj + k_ij²) / S. The outputs of 50
    units are not quite Gaussian; their kurtosis adds about 6 / 50 to the first of the two terms."""
    network, random = MLP(3, width, 2, nn.ReLU).double(), generator(1)
    x = torch.cat([2 * normal(4, 3), torch.zeros(1, 3, dtype=torch.float64)])
    x[3] = x[2] * (1 + 1e-9)  # inputs that are alike but for rounding
    draw = {"generator": random, "dtype": torch.float64}
    weights = {k: VARIANCE**0.5 * torch.randn(networks, *p.shape, **draw) for k, p in network.named_parameters()}
    with torch.no_grad():
        outputs = vmap(lambda w: functional_call(network, w, (x,)), chunk_size=2000)(weights)
    k = relu_covariance(x, x, VARIANCE, width)
    diagonal = k.diagonal()
    error = (((1 + 6 / width) * diagonal[:, None] * diagonal + k.square()) / networks).sqrt()
    for output in range(2):
        sampled = outputs[:, :, output].T @ outputs[:, :, output] / networks
        assert ((sampled - k).abs() < 5 * error).all()
    # Mean and raw deviation share their hidden units and are uncorrelated nevertheless.
    across = outputs[:, :, 0].T @ outputs[:, :, 1] / networks
    assert (across.abs() < 5 * ((1 + 2 / width) * (diagonal[:, None] * diagonal + k.square()) / networks).sqrt()).all()


def processes(rows, tests, seed=2):
    x, test = normal(rows, 2, seed=seed), normal(tests, 2, seed=seed + 1)
    size = (0.3, 20)
    return infinite_width.ProcessCovariances(
        relu_covariance(x, x, *size), relu_covariance(x, test, *size), relu_covariance(test, test, *size)
    )


def test_with_known_noise_it_is_gaussian_process_regression():
    """Against scikit-learn, whose dot product of the rows of a root of the joint covariance is our kernel."""
    prior, y, deviation = processes(20, 6), normal(20, seed=9), 0.3 + normal(20, seed=4).abs()
    joint = torch.cat([torch.cat([prior.train, prior.cross], 1), torch.cat([prior.cross.T, prior.test], 1)])
    rows = square_root(joint)[0].numpy()
    oracle = GaussianProcessRegressor(DotProduct(0, "fixed"), alpha=deviation.square().numpy(), optimizer=None)
    oracle.fit(rows[:20], y.numpy())
    mean, covariance = oracle.predict(rows[20:], return_cov=True)
    ours, root = conditioned(y, prior, deviation)
    assert np.allclose(ours, mean, atol=1e-8)
    assert np.allclose(root @ root.T, covariance, atol=1e-8)


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_the_marginal_likelihood_and_its_gradient(floor):
    prior, y = processes(15, 1), normal(15, seed=5)
    root = square_root(prior.train)[0]
    likelihood = infinite_width.NoiseLikelihood(y, prior.train, root, floor)
    points = normal(3, root.shape[1], seed=6)
    values, gradients = likelihood(points)
    for point, value in zip(points, values, strict=True):
        covariance = prior.train + torch.diag((softplus(root @ point) + floor).square())
        assert float(value) == pytest.approx(multivariate_normal(np.zeros(15), covariance.numpy()).logpdf(y.numpy()))
    step = 1e-6 * normal(root.shape[1], seed=7)
    ahead, behind = likelihood(points + step)[0], likelihood(points - step)[0]
    assert torch.allclose((ahead - behind) / 2, gradients @ step, rtol=1e-5, atol=1e-13)


def test_noise_that_underflows_at_equal_inputs_has_no_density():
    """A trajectory that ends there is rejected; the chains beside it are not affected."""
    equal = torch.ones(2, 2, dtype=torch.float64)
    likelihood = infinite_width.NoiseLikelihood(normal(2), equal, torch.eye(2, dtype=torch.float64))
    points = torch.tensor([[-400.0, -400.0], [0.3, -0.2]], dtype=torch.float64)
    values, gradients = likelihood(points)
    alone, slope = likelihood(points[1:])
    assert values[0].isnan()
    assert gradients[0].isfinite().all()
    assert float(values[1]) == float(alone[0])
    assert torch.equal(gradients[1], slope[0])


def test_the_square_root_of_a_singular_covariance():
    a = normal(6, 3)
    covariance = a @ a.T
    root, inverse = square_root(covariance)
    assert root.shape == (6, 3)
    assert torch.allclose(root @ root.T, covariance, atol=1e-10)
    assert torch.allclose(inverse.T @ root, torch.eye(3, dtype=torch.float64), atol=1e-10)


def test_with_one_unknown_noise_it_is_quadrature():
    """r constant, N(0, 1) a priori: the posterior predictive's moments by quadrature over r. 200 states of nearly independent
    draws, counted as 100, and 20,000 draws of y, seed 0; five standard errors."""
    mean, floor = processes(12, 3), 0.1
    ones = torch.ones(15, 15, dtype=torch.float64)
    raw = infinite_width.ProcessCovariances(ones[:12, :12], ones[:12, 12:], ones[12:, 12:])
    y = square_root(mean.train)[0] @ normal(12, seed=3) + 0.4 * normal(12, seed=4)
    grid = np.linspace(-7, 5, 1201)
    density, centers, variances = [], [], []
    for r in torch.from_numpy(grid):
        noise = (softplus(r) + floor).expand(12)
        covariance = mean.train + torch.diag(noise.square())
        density.append(multivariate_normal(np.zeros(12), covariance.numpy()).logpdf(y.numpy()) - float(r) ** 2 / 2)
        center, root = conditioned(y, mean, noise)
        centers.append(center.numpy())
        variances.append((root.square().sum(dim=1) + noise[0] ** 2).numpy())
    weights = np.exp(density - np.max(density))
    weights /= weights.sum()
    centers, variances = np.array(centers), np.array(variances)
    expected = weights @ centers
    within = variances + (centers - expected) ** 2
    variance = weights @ within
    draws = posterior_draws(y, mean, raw, 20_000, seed=0, floor=floor)[0].numpy()
    assert draws.shape == (3, 20_000)
    error = np.sqrt(weights @ (centers - expected) ** 2 / 100 + variance / 20_000)
    assert (np.abs(draws.mean(axis=1) - expected) < 5 * error).all()
    between = np.sqrt(weights @ (within - variance) ** 2)
    # Tails heavier than Gaussian: the variance's own error from the draws' fourth moments.
    fourth = ((draws - expected[:, None]) ** 4).mean(axis=1)
    error = between / 10 + np.sqrt(fourth / 20_000)
    assert (np.abs(((draws - expected[:, None]) ** 2).mean(axis=1) - variance) < 5 * error).all()


def test_chains_that_have_not_converged_are_refused(monkeypatch):
    monkeypatch.setattr(infinite_width, "BURN_IN", 1)
    monkeypatch.setattr(infinite_width, "STATES", 16)
    monkeypatch.setattr(infinite_width.hmc, "steps_for", lambda step, variance: 1)  # they hardly move
    monkeypatch.setattr(infinite_width.hmc, "first_step", lambda *_: 1e-4)
    prior = processes(12, 3)
    with pytest.raises(WorkError, match="chains of the infinite-width limit have not converged: R-hat"):
        posterior_draws(normal(12), prior, prior, 10, seed=0)


def test_value_and_gradient_are_those_of_automatic_differentiation():
    root, at = normal(6, 4), normal(2, 12, seed=1).requires_grad_(True)
    given = torch.tensor([0, 2, 1, 1, 0, 2])
    value, gradient = infinite_width.ClassLikelihood(given, root, 3)(at)
    latent = at.view(2, 3, 4) @ root.T
    plain = -torch.nn.functional.cross_entropy(latent, given.expand(2, -1), reduction="none").sum(dim=1)
    assert torch.allclose(value, plain)
    (slope,) = torch.autograd.grad(plain.sum(), at)
    assert torch.allclose(gradient, slope)


def test_the_limit_of_a_linear_network_is_its_posterior():
    """Against quadrature. 600 states of four chains, of which a quarter is independent at least: .02 of a std of .25, seed 0."""
    target = TARGETS["logistic"]
    data = load(target)
    truth = read_reference(target, data.sha256).probs
    found, _ = infinite_width.sample(target, data)
    assert found.shape == (1200, len(truth), 2)
    assert distances.total_variation(found.mean(axis=0), truth).mean() < 0.02


def test_the_tangent_kernel_is_the_covariance_of_the_linear_expansion():
    """The slopes of networks with many units at random weights: 4,000 units leave an error of 1 / √4000 = 1.6 %, times 4."""
    torch.manual_seed(0)
    variance, width = 0.2, 4000
    x = torch.randn(3, 2, dtype=torch.float64)
    hidden = variance**0.5 * torch.randn(width, 3, dtype=torch.float64)
    out = variance**0.5 * torch.randn(width, dtype=torch.float64)
    wide = torch.cat([x, torch.ones(3, 1, dtype=torch.float64)], dim=1)
    before = wide @ hidden.T
    by_out, by_hidden = before.relu(), out * (before > 0)
    slopes = by_out @ by_out.T + (by_hidden @ by_hidden.T) * (wide @ wide.T) + 1
    kernel = infinite_width.tangent_covariance(x, x, variance, width)
    assert np.allclose(kernel, variance * slopes, rtol=0.07)


def test_the_infinite_width_limit_is_no_network_and_counts_its_likelihood(monkeypatch, tmp_path):
    target = regression_target()
    file = run_entry("nngp", target, budget=5, out=tmp_path)
    submission = read_submission(file, target, TEST, load(target).sha256)
    assert submission.draws.shape == (TEST, 1000)
    used = submission.about.budget.used
    assert submission.about.budget == Budget(limit=None, used=used)
    assert used > 4 * (60 + 50)  # four chains of 60 transitions and 50, several evaluations each
    assert submission.track(target) == "infinite"
    # The line of the tiny target, noise 0.1 of a deviation of 1, is learnt.
    truth = labels(load(target))[1]
    assert np.abs(submission.draws.mean(axis=1) - truth).mean() < 0.5 * np.abs(truth).mean()
    with monkeypatch.context() as patch:
        patch.setattr(infinite_width, "sample", None)  # nothing is computed twice
        assert run_entry("nngp", target, budget=5, out=tmp_path) == file
    with pytest.raises(InputError, match="has no settings"):
        run_entry("nngp", target, budget=5, out=tmp_path, overrides=["optimizer.lr=1"])
    with pytest.raises(InputError, match="infinite-width limit of 'lenet-smooth' is not known"):
        run_entry("nngp", TARGETS["fundus"], budget=5, out=tmp_path)
