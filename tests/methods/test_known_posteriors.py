"""What each method believes where the truth is known: a conjugate Gaussian regression, and logistic regression in 2-d. Every method
trains as it does in the exam: `fit` on `point_batches`, l2 = 1 / (2 N s²) on everything, so that the loss is -log posterior / N.
Exact ones must reach the posterior, approximate ones their own fixed point, found here by closed form or quadrature. All seeds are
those of the runs (0), all batches whole."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

from retinabench.data.dataset import ArrayDataset
from retinabench.experiments.config import load_run
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.density import point_batches
from retinabench.methods import laplace
from retinabench.methods.composed import Ensemble
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Categorical, Gaussian
from retinabench.models.last_layer import SplitNetwork

NOISE, PRIOR = 0.5, 0.25  # deviation of the targets, prior variance
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()


class LinearMean(nn.Module):
    """(B, D) -> (B, 2): mean x·w, and the raw deviation of the known noise."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(start.clone())
        self.register_buffer("raw", torch.tensor(np.log(np.expm1(NOISE)), dtype=torch.float32))

    def forward(self, x):
        return torch.stack([x @ self.w, self.raw.expand(len(x))], dim=1)


class TwoClasses(nn.Module):
    """(B, 2) -> logits (B, 2) of the classes 0 and 1: 0 and x·w."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, x):
        return torch.stack([torch.zeros(len(x)), x @ self.w], dim=1)


class Problem:
    """Standardised inputs (N, D) and labels (N,), as the methods see them, and how to train on them."""

    def __init__(self, inputs, targets, network):
        points = ArrayDataset(inputs, targets, np.full(len(targets), "train"))
        self.batches = point_batches(TargetData(points, points), len(targets), 0, torch.device("cpu"))
        self.x, self.y = (self.batches.source.inputs.double().numpy(), self.batches.source.labels.double().numpy())
        self.network = network
        self.likelihood = Gaussian() if targets.dtype.kind == "f" else Categorical(2)

    def run(self, *words, seed=0):
        l2 = 1 / (2 * len(self.y) * PRIOR)
        fixed = [f"optimizer.l2={l2}", "optimizer.l2_on=everything", "optimizer.select=last"]
        fixed += ["optimizer.reweight=none", "optimizer.augment=none", "optimizer.warmup=0"]
        return load_run(None, [*fixed, *words], data="points", seed=seed)

    def fit(self, *words, seed=0):
        run = self.run(*words, seed=seed)
        start = torch.randn(self.x.shape[1], generator=torch.Generator().manual_seed(seed))
        method = METHODS[run.method.name]
        return method.fit(self.network(start), self.batches, run, Checkpoint(), self.likelihood)


@pytest.fixture(scope="module")
def gaussian():
    """40 points with correlated inputs."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=(40, 3)) @ np.array([[1, 0.8, 0], [0, 1, -0.6], [0, 0, 1]])
    return Problem(inputs, inputs @ [1.0, -2.0, 0.5] + random.normal(size=40), LinearMean)


@pytest.fixture(scope="module")
def logistic():
    """40 points of two classes that overlap, with correlated inputs."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(40, 2)) @ np.array([[1, 0.7], [0, 0.7]])
    return Problem(inputs, (random.random(40) < expit(inputs @ [1.0, -2.0])).astype(np.int64), TwoClasses)


DESCENT = ["optimizer.lr=0.1", "optimizer.epochs=150"]
ADAPTIVE = ["optimizer.name=adam", "optimizer.lr=0.1", "optimizer.epochs=250"]
NATURAL = ["optimizer.lr=0.02", "optimizer.epochs=600", "method.std=0.2", "method.beta2=0.99"]


def weights(posterior):
    return posterior.model.w.detach().double().numpy()


def deviations(posterior):
    return posterior.stds["w"].double().numpy()


# The conjugate Gaussian.


def test_map_is_the_mean_of_a_gaussian_posterior_and_a_deep_ensemble_collapses_to_it(gaussian):
    precision = gaussian.x.T @ gaussian.x / NOISE**2 + np.eye(3) / PRIOR
    mean = np.linalg.solve(precision, gaussian.x.T @ gaussian.y / NOISE**2)
    """Float32 weights near 1: 1e-4. There is one mode, so that members of any start agree."""
    run = gaussian.run("method.name=ensemble", "method.members=2", *DESCENT)
    members = [gaussian.fit("method.name=map", *DESCENT, seed=m.seed) for m in Ensemble.member_runs(run)]
    for member in members:
        assert np.allclose(weights(member), mean, atol=1e-4)


def test_last_layer_laplace_is_the_exact_posterior_of_weights_that_enter_linearly(gaussian):
    """At a deviation that does not depend on x, the block of the mean's weights is (XᵀX / σ² + δ)⁻¹, bias included."""
    network = SplitNetwork(nn.Identity(), nn.Linear(3, 2), 3, "head")
    with torch.no_grad():
        network.head.weight[1] = 0
        network.head.bias[1] = np.log(np.expm1(NOISE))
    posterior = laplace.LastLayerPosterior(network, Gaussian(), torch.zeros(8, 8))
    _, _, widen = laplace.measure_last_layer(posterior, gaussian.batches, gaussian.run("method.name=laplace"))
    widen(1 / PRIOR)
    ours = (posterior.factor @ posterior.factor.T)[:4, :4].double().numpy()
    phi = np.column_stack([gaussian.x, np.ones(40)])
    assert np.allclose(ours, np.linalg.inv(phi.T @ phi / NOISE**2 + np.eye(4) / PRIOR), rtol=1e-4, atol=1e-7)


# Logistic regression.


def activations(problem, mean, deviation):
    """x·θ at the nodes of Gauss and Hermite, (N, nodes), for θ ~ N(mean, deviation²)."""
    spread = np.sqrt(problem.x**2 @ np.square(deviation))
    return (problem.x @ mean)[:, None] + spread[:, None] * NODES


def free_energy(parameters, problem):
    """E_q[-log p(D | θ)] + KL(q ‖ prior) at mean and log deviation, by quadrature."""
    mean, deviation = parameters[:2], np.exp(parameters[2:])
    a = activations(problem, mean, deviation)
    loss = ((np.logaddexp(0, a) - problem.y[:, None] * a) @ NODE_WEIGHTS).sum()
    return loss + 0.5 * ((deviation**2 + mean**2) / PRIOR - 1 - np.log(deviation**2 / PRIOR)).sum()


@pytest.fixture(scope="module")
def mode(logistic):
    """The posterior's mode and the negative Hessian of the log posterior there."""

    def energy(w):
        a = logistic.x @ w
        return (np.logaddexp(0, a) - logistic.y * a).sum() + w @ w / (2 * PRIOR)

    w = minimize(energy, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x
    p = expit(logistic.x @ w)
    return w, logistic.x.T @ (logistic.x * (p * (1 - p))[:, None]) + np.eye(2) / PRIOR


@pytest.fixture(scope="module")
def grid(logistic):
    """Weights (G, 2) on a grid, and their posterior probabilities (G,): the truth."""
    axis = np.linspace(-3, 3, 241)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    a = w @ logistic.x.T
    log_density = (logistic.y * a - np.logaddexp(0, a)).sum(axis=1) - (w**2).sum(axis=1) / (2 * PRIOR)
    density = np.exp(log_density - log_density.max())
    return w, density / density.sum()


def test_diagonal_laplace_is_mode_and_curvature(logistic, mode):
    words = ["method.name=laplace", "method.weights=diagonal", f"method.prior_precision={1 / PRIOR}"]
    posterior = logistic.fit(*words, *DESCENT)
    assert np.allclose(weights(posterior), mode[0], atol=1e-4)
    assert np.allclose(deviations(posterior), mode[1].diagonal() ** -0.5, rtol=1e-4)


def test_mean_field_and_ivon_reach_the_least_free_energy(logistic):
    """IVON's estimate of the curvature spreads by up to twice its size: over 8 draws and the last 200 steps, 5 % remain."""
    found = minimize(free_energy, np.zeros(4), args=(logistic,), method="BFGS", options={"gtol": 1e-7})
    mean, deviation = found.x[:2], np.exp(found.x[2:])
    posterior = logistic.fit("method.name=gaussian_vi", "method.train_samples=8", "method.std=0.1", *ADAPTIVE)
    assert np.allclose(weights(posterior), mean, atol=0.02)
    assert np.allclose(deviations(posterior), deviation, rtol=0.1)
    posterior = logistic.fit("method.name=ivon", "method.train_samples=8", *NATURAL)
    assert np.allclose(weights(posterior), mean, atol=0.04)
    assert np.allclose(deviations(posterior) ** -2, deviation**-2, rtol=0.15)


@pytest.mark.slow
def test_vogn_reaches_its_fixed_point_by_quadrature(logistic):
    x, y = logistic.x, logistic.y
    delta, mean, h = 1 / (len(y) * PRIOR), np.zeros(2), np.ones(2)
    for _ in range(2000):
        deviation = (len(y) * (h + delta)) ** -0.5
        residual = expit(activations(logistic, mean, deviation)) - y[:, None]
        gradient = (x * (residual @ NODE_WEIGHTS)[:, None]).mean(axis=0) + delta * mean
        h = 0.9 * h + 0.1 * (x**2 * (residual**2 @ NODE_WEIGHTS)[:, None]).mean(axis=0)
        mean = mean - 0.1 * gradient / (h + delta)
    posterior = logistic.fit("method.name=vogn", *NATURAL)
    assert np.allclose(weights(posterior), mean, atol=0.04)
    assert np.allclose(deviations(posterior) ** -2, len(y) * (h + delta), rtol=0.08)
