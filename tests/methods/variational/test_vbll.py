"""VBLL: its Gaussian against dense algebra, and its bound and posterior against those of a conjugate regression."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import nn

from retinabench.core.errors import InputError
from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Gaussian
from retinabench.methods.training.losses import BatchInfo
from retinabench.methods.variational import vbll

NOISE, PRIOR = 0.5, 0.25  # std of the targets, prior variance


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def layer():
    made = vbll.VariationalLinear(nn.Linear(5, 2), 2, 3, generator())
    with torch.no_grad():
        made.mean.normal_(generator=generator(1))
        made.log_scale.normal_(generator=generator(2))
        made.root.normal_(generator=generator(3))
    return made


def covariance(layer):
    scale, root = layer.log_scale.exp().detach(), layer.root.detach()
    inner = torch.linalg.inv(torch.eye(root.shape[1]) + root @ root.mT)
    return (scale[:, :, None] * inner * scale[:, None]).double()


def test_variance_and_divergence_are_those_of_the_dense_covariance(layer):
    dense, mean = covariance(layer), layer.mean.detach().double()
    features = torch.randn(7, 5, generator=generator(4))
    expected = torch.einsum("bi,cij,bj->bc", features.double(), dense, features.double())
    assert torch.allclose(layer.variance(features).double(), expected, rtol=1e-4)
    prior = torch.distributions.MultivariateNormal(torch.zeros(5).double(), PRIOR * torch.eye(5).double())
    kl = sum(
        torch.distributions.kl_divergence(torch.distributions.MultivariateNormal(m, S), prior)
        for m, S in zip(mean, dense, strict=True)
    )
    assert float(layer.divergence(PRIOR).detach()) == pytest.approx(float(kl.detach()), rel=1e-5)


def test_draws_have_mean_and_covariance(layer):
    """5,000 draws of weights; 5 standard errors of a covariance."""
    draws, source = [], generator(5)
    with torch.no_grad():
        draws = torch.stack([layer.draw(source) for _ in range(5_000)]).double()
    for row, dense in enumerate(covariance(layer)):
        spread = dense.diagonal()
        error = ((spread[:, None] * spread + dense.square()) / len(draws)).sqrt()
        assert ((draws[:, row].T.cov() - dense).abs() < 5 * error).all()
        assert (
            (draws[:, row].mean(0) - layer.mean[row].double()).abs() < 5 * (spread / len(draws)).sqrt()
        ).all()


@pytest.fixture(scope="module")
def regression():
    """30 points in 3 dimensions with correlated inputs; the noise is known, and there is no bias."""
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 3)) @ np.array([[1, 0.8, 0], [0, 1, -0.6], [0, 0, 1]])
    y = x @ [0.4, -0.8, 0.3] + NOISE * random.normal(size=30)
    return x.astype(np.float32), y.astype(np.float32)


def objective(regression, rank):
    """The loss of a linear layer whose bias is 0 and whose noise is known, and the layer."""
    x, y = (torch.from_numpy(values) for values in regression)
    batches = array_batches(*regression, len(y), 0, torch.device("cpu"))
    network = nn.Linear(3, 2)
    with torch.no_grad():
        network.weight[:], network.bias[:] = 0, torch.tensor([0, math.log(math.expm1(NOISE))])
    run = load_run(
        None, ["method.name=vbll", f"method.rank={rank}", "optimizer.reweight=none"], data="points"
    )
    posterior = vbll.build(network, run, Gaussian())
    with torch.no_grad():
        posterior.head.log_scale.fill_(0.5 * math.log(PRIOR))
    posterior.head.mean.register_hook(lambda gradient: gradient * torch.tensor([[1.0], [0.0]]))
    terms = vbll.bound(posterior, batches, run, PRIOR)
    return lambda: sum(terms(x, y, BatchInfo.of(y)).values()), posterior


def minimised(loss, head):
    optimizer = torch.optim.LBFGS(
        [head.mean, head.log_scale, head.root], max_iter=300, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    return loss().item()


def test_of_a_conjugate_regression_it_is_the_posterior_and_its_bound_the_evidence(regression):
    """With R = D any covariance is in the family; float32 and the stopping rule of L-BFGS: 1e-2 relative."""
    x, y = (values.astype(np.float64) for values in regression)
    evidence = multivariate_normal(np.zeros(30), NOISE**2 * np.eye(30) + PRIOR * x @ x.T).logpdf(y)
    exact = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3) / PRIOR)
    loss, posterior = objective(regression, 3)
    assert -30 * loss().item() < evidence - 1
    found = -30 * minimised(loss, posterior.head)
    assert found == pytest.approx(evidence, abs=2e-3)
    mean = posterior.head.mean[0].detach().numpy()
    assert np.allclose(mean, exact @ x.T @ y / NOISE**2, atol=2e-3)
    assert np.allclose(covariance(posterior.head)[0], exact, rtol=1e-2, atol=1e-4)


def test_a_smaller_rank_has_a_lower_bound_and_mean_field_the_inverse_of_the_precision_s_diagonal(regression):
    """float32 and the stopping rule of L-BFGS: 1e-2 relative."""
    x = regression[0].astype(np.float64)
    bounds = []
    for rank in (0, 1, 3):
        loss, posterior = objective(regression, rank)
        bounds.append(-30 * minimised(loss, posterior.head))
        if rank == 0:
            precision = (x.T @ x / NOISE**2 + np.eye(3) / PRIOR).diagonal()
            assert np.allclose(covariance(posterior.head)[0].diagonal(), 1 / precision, rtol=1e-2)
    assert bounds[0] < bounds[1] - 0.01
    assert bounds[1] < bounds[2] + 1e-3


def test_an_l2_term_of_nothing_is_no_prior(regression):
    batches = array_batches(*regression, 30, 0, torch.device("cpu"))
    run = load_run(None, ["method.name=vbll", "optimizer.l2=0"], data="points")
    with pytest.raises(InputError, match="no prior of the last layer"):
        vbll.fit(nn.Linear(3, 1), batches, run, Checkpoint(), Bernoulli())
