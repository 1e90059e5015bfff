"""Laplace's curvature against Hessians written out, and the precision of the evidence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from torch import nn
from torch.func import functional_call, jacrev

from retinabench.methods.posthoc.laplace_curvature import (
    diagonal_curvature,
    evidence_precision,
    linear_curvature,
)
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian
from retinabench.models.last_layer import with_bias
from retinabench.models.networks.resnet import resnet18


def hessian(function):
    return jacrev(jacrev(function))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_logits_hessian_is_that_of_the_cross_entropy(outputs):
    logits = torch.randn(outputs, generator=generator(), dtype=torch.float64)
    losses = (
        [lambda z: nn.functional.softplus(z).sum(), lambda z: nn.functional.softplus(-z).sum()]
        if outputs == 1
        else [lambda z, y=y: z.logsumexp(0) - z[y] for y in range(outputs)]
    )
    for loss in losses:  # whatever the label
        assert torch.allclose(
            (Bernoulli() if outputs == 1 else Categorical(outputs)).information(logits[None])[0],
            hessian(loss)(logits),
        )


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_on_logistic_regression_the_curvature_is_the_hessian(outputs):
    """Of the weighted, summed cross-entropy in weights and biases: by automatic differentiation, twice."""
    random = generator()
    features, weights = torch.randn(20, 4, generator=random), torch.rand(20, generator=random) + 0.5
    labels = torch.randint(max(2, outputs), (20,), generator=random)
    theta = torch.randn(outputs, 5, generator=random, dtype=torch.float64)
    phi = with_bias(features).double()

    def loss(theta):
        logits = phi @ theta.view(outputs, 5).T
        logits = torch.cat([torch.zeros(20, 1), logits], dim=1) if outputs == 1 else logits
        return weights.double() @ nn.functional.cross_entropy(logits, labels, reduction="none")

    ours = linear_curvature(
        with_bias(features),
        (phi @ theta.T).float(),
        weights,
        Bernoulli() if outputs == 1 else Categorical(outputs),
    )
    assert torch.allclose(ours, hessian(loss)(theta.flatten()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_a_regression_s_curvature_is_the_expected_hessian(floor):
    """Of -log N(y; μ, (softplus(r) + floor)²) over y of the model itself, by Gauss and Hermite; off the diagonal it is 0."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(20)
    likelihood = Gaussian(floor)
    for mu, r in ((0.3, -2.0), (-1.0, 0.5), (0.0, 3.0)):
        outputs = torch.tensor([[mu, r]], dtype=torch.float64)
        expected = torch.zeros(2, 2, dtype=torch.float64)
        for node, share in zip(nodes, shares / shares.sum(), strict=True):
            y = mu + (nn.functional.softplus(outputs[:, 1]) + floor) * node
            loss = hessian(lambda z, y=y: likelihood.negative_log_likelihood(z[None], y)[0])
            expected += share * loss(outputs[0])
        assert torch.allclose(likelihood.information(outputs)[0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(2), Categorical(5), Gaussian()])
def test_the_diagonal_is_that_of_the_explicit_gauss_newton_matrix(likelihood):
    model = resnet18(width=2, outputs=likelihood.outputs, stem="small").eval()
    images, weights = torch.rand(20, 3, 16, 16, generator=generator()), torch.rand(20, generator=generator(1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    jacobian = jacrev(lambda p: functional_call(model, p, (images,)))(parameters)
    curvature = likelihood.information(model(images).detach()) * weights[:, None, None]
    ours = diagonal_curvature(model, images, weights, likelihood)
    for name, rows in jacobian.items():
        brute = torch.einsum("nip,nij,njp->p", rows.flatten(2), curvature, rows.flatten(2)).view_as(
            ours[name]
        )
        assert torch.allclose(ours[name], brute, rtol=1e-3, atol=1e-6 * float(brute.max())), name


def test_the_evidence_s_precision_is_the_exact_one_of_bayesian_linear_regression():
    """y = Φ w + ε, w ~ N(0, 1/δ): at the fixed point of θ*(δ) and δ(θ*), δ maximises the exact marginal likelihood."""
    random = np.random.default_rng(0)
    phi = random.normal(size=(40, 6))
    y = phi @ random.normal(0, 0.7, 6) + random.normal(size=40)
    H = phi.T @ phi
    delta = 1.0
    for _ in range(200):
        w = np.linalg.solve(H + delta * np.eye(6), phi.T @ y)
        delta = evidence_precision(np.linalg.eigvalsh(H), float(w @ w))

    def minus_evidence(log_delta):
        return -multivariate_normal(np.zeros(40), np.eye(40) + phi @ phi.T / np.exp(log_delta)).logpdf(y)

    exact = np.exp(
        minimize_scalar(minus_evidence, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9}).x
    )
    assert delta == pytest.approx(exact, rel=1e-5)


def test_the_evidence_s_precision_is_the_highest_point_of_the_formula():
    random = np.random.default_rng(1)
    eigenvalues, squared_norm = random.exponential(5, 30) * (random.random(30) < 0.6), 4.0
    grid = np.geomspace(1e-4, 1e4, 20_001)
    value = 0.5 * (30 * np.log(grid) - np.log(eigenvalues[:, None] + grid).sum(axis=0) - grid * squared_norm)
    assert evidence_precision(eigenvalues, squared_norm) == pytest.approx(grid[value.argmax()], rel=2e-3)
    assert evidence_precision(np.zeros(3), 1.0) < 1e-12
