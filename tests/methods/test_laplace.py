import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from torch import nn
from torch.func import functional_call, jacrev

from retinabench.core.errors import InputError
from retinabench.methods import laplace
from retinabench.methods.laplace import DiagonalPosterior, diagonal_curvature, evidence_precision, linear_curvature
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian
from retinabench.models.build import build_model
from retinabench.models.last_layer import with_bias
from retinabench.models.networks.resnet import resnet18
from support.helpers import TINY, generator


def hessian(function):
    return jacrev(jacrev(function))


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
            (Bernoulli() if outputs == 1 else Categorical(outputs)).information(logits[None])[0], hessian(loss)(logits)
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
        with_bias(features), (phi @ theta.T).float(), weights, Bernoulli() if outputs == 1 else Categorical(outputs)
    )
    assert torch.allclose(ours, hessian(loss)(theta.flatten()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(2), Categorical(5), Gaussian()])
def test_the_diagonal_is_that_of_the_explicit_gauss_newton_matrix(likelihood):
    model = resnet18(width=2, outputs=likelihood.outputs, stem="small").eval()
    images, weights = torch.rand(20, 3, 16, 16, generator=generator()), torch.rand(20, generator=generator(1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    jacobian = jacrev(lambda p: functional_call(model, p, (images,)))(parameters)
    curvature = likelihood.information(model(images).detach()) * weights[:, None, None]
    ours = diagonal_curvature(model, images, weights, likelihood)
    for name, rows in jacobian.items():
        brute = torch.einsum("nip,nij,njp->p", rows.flatten(2), curvature, rows.flatten(2)).view_as(ours[name])
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

    exact = np.exp(minimize_scalar(minus_evidence, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9}).x)
    assert delta == pytest.approx(exact, rel=1e-5)


def test_diagonal_samples_are_those_of_the_linearised_network():
    """f + J ε / √(h + δ): covariance of 1,000 sampled logits against J diag(σ²) Jᵀ, 5 standard errors."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 1))
    draws = generator()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.5, generator=draws)
    deviations = {name: torch.rand(p.shape, generator=draws) for name, p in model.named_parameters()}
    images = torch.randn(3, 3, 2, 2, generator=draws)
    logits = DiagonalPosterior(model, Bernoulli(), deviations).predict(images, 1000, draws)[..., 1].double().logit()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    jacobian = jacrev(lambda p: functional_call(model, p, (images,))[:, 0])(parameters)
    rows = torch.cat([(jacobian[n] * deviations[n]).flatten(1) for n in deviations], dim=1).double()
    expected = rows @ rows.T
    diagonal = expected.diagonal()
    error = ((diagonal[:, None] * diagonal + expected.square()) / 1000).sqrt()
    assert ((logits.T.cov() - expected).abs() < 5 * error).all()
    mean = model(images)[:, 0].detach().double()
    assert ((logits.mean(dim=0) - mean).abs() < 5 * (diagonal / 1000).sqrt()).all()


LAPLACE = [*TINY, "method.name=laplace"]


def test_with_linear_regression_s_curvature_the_posterior_is_its_closed_form(opened):
    """At θ* = 0 the logistic curvature is that of linear regression with noise variance 4: Σ = (ΦᵀΦ / 4 + δ)⁻¹."""
    run, data = opened(*LAPLACE, "optimizer.reweight=none")
    posterior = laplace.build(build_model(run.model, 0), run, Bernoulli())
    network = posterior.model.eval()
    with torch.no_grad():
        network.head.weight.zero_()
    _, _, widen = laplace.measure_last_layer(posterior, data, run)
    widen(0.3)
    pictures = torch.cat([images for images, _ in data.rows(data.train)])
    phi = with_bias(network.features(pictures).detach()).double()
    closed = torch.linalg.inv(phi.T @ phi / 4 + 0.3 * torch.eye(phi.shape[1]))
    ours = posterior.factor.double() @ posterior.factor.double().T
    assert torch.allclose(ours, closed, rtol=1e-4, atol=1e-5)
    # Sampled logits have variance φᵀ Σ φ: 5,000 draws, 5 standard errors of a variance.
    probs = posterior.predict(pictures[:3], 5_000, generator())[..., 1].double()
    expected = torch.einsum("bi,ij,bj->b", phi[:3], closed, phi[:3])
    assert torch.allclose(probs.logit().var(dim=0), expected, rtol=5 * (2 / 5_000) ** 0.5 + 1e-3)


def test_reweighted_training_gives_reweighted_curvature(opened):
    run, data = opened(*LAPLACE, "optimizer.reweight=minibatch")
    posterior = laplace.build(build_model(run.model, 0), run, Bernoulli())
    network = posterior.model.eval()
    pictures, labels = (torch.cat(parts) for parts in zip(*data.rows(data.train), strict=True))
    share = labels.mean()
    assert share != 0.5
    features = network.features(pictures).detach()
    weights = torch.where(labels == 1, 0.5 / share, 0.5 / (1 - share))
    expected = linear_curvature(with_bias(features), network.head(features).detach(), weights, Bernoulli())
    assert torch.allclose(laplace.last_layer_curvature(posterior, data, run), expected, rtol=1e-4)


def test_a_given_precision_is_taken_and_a_wrong_one_refused(opened):
    run, data = opened(*LAPLACE, "method.prior_precision=1e6")
    posterior = laplace.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
    assert isinstance(posterior, laplace.LastLayerPosterior)
    # The prior decides: the covariance is I / δ.
    size = len(posterior.factor)
    assert torch.allclose(posterior.factor @ posterior.factor.T, torch.eye(size) / 1e6, rtol=1e-3, atol=1e-9)
    for wrong in ("0.0", "-1.0", "-1", "0", "guess"):
        with pytest.raises(InputError, match="prior_precision"):
            opened(*LAPLACE, f"method.prior_precision={wrong}")
