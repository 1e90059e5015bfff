"""SNGP against the exact Gaussian process of scikit-learn, with many random features."""

from __future__ import annotations

import math

import numpy as np
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import nn

from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods.posthoc import laplace, sngp
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Gaussian
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from retinabench.models.spectral_norm import SpectralBound

NOISE, LENGTH, AMPLITUDE = 0.3, 0.7, 2.0


def settings(**more):
    return sngp.Config(length_scale=LENGTH, kernel_variance=AMPLITUDE, **more)


def test_random_features_have_the_kernel():
    """M = 20,000: each entry of the kernel has a standard error of at most a² / √M."""
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    features = sngp.RandomFeatures(3, settings(random_features=20_000), torch.Generator().manual_seed(1))(x)
    kernel = ConstantKernel(AMPLITUDE) * RBF(LENGTH * math.sqrt(3))
    assert np.abs((features @ features.T).numpy() - kernel(x.numpy())).max() < 5 * AMPLITUDE / math.sqrt(
        20_000
    )


def test_its_posterior_is_that_of_the_exact_gaussian_process():
    """Mean and std within 0.15 prior stds (a kernel of 600 random features has a standard error of 0.04); the noise is known."""
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (25, 1)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + NOISE * random.normal(size=25)).astype(np.float32)
    run = TrainingRun(method=settings(random_features=600, spectral_bound=0))
    run = run.model_copy(update={"optimizer": run.optimizer.model_copy(update={"reweight": "none"})})
    posterior = sngp.build(nn.Linear(1, 2), run, Gaussian())
    head, batches = posterior.model.head, array_batches(x, y, 25, 0, torch.device("cpu"))
    raw = math.log(math.expm1(NOISE))
    with torch.no_grad():  # the mode, by ridge regression; the bias of the mean has a prior of its own
        phi = posterior.model.features(torch.from_numpy(x)).double()
        gram = phi @ phi.T + 1 + NOISE**2 * torch.eye(25)
        dual = torch.linalg.solve(gram, torch.from_numpy(y).double())
        head.weight[0], head.bias[0], head.bias[1] = (phi.T @ dual).float(), dual.sum().float(), raw
    posterior.model.eval()
    curvature = laplace.last_layer_curvature(posterior, batches, run)
    posterior.factor = sngp.inverse_root(curvature).float()
    grid = np.linspace(-4, 4, 40, dtype=np.float32)[:, None]
    with torch.no_grad():
        phi = posterior.model.features(torch.from_numpy(grid))
        mean = posterior.model.head(phi)[:, 0].numpy()
        block = posterior.factor[:601]
        std = (torch.cat([phi, torch.ones(40, 1)], 1) @ block).norm(dim=1).numpy()
    kernel = ConstantKernel(AMPLITUDE) * RBF(LENGTH) + ConstantKernel(1.0)
    exact = GaussianProcessRegressor(kernel, alpha=NOISE**2, optimizer=None).fit(x, y)
    expected, spread = exact.predict(grid, return_std=True)
    scale = math.sqrt(AMPLITUDE + 1)
    assert np.abs(mean - expected).max() < 0.15 * scale
    assert np.abs(std - spread).max() < 0.15 * scale
    assert std[0] > 3 * std[20]  # far away the prior's


def test_training_reaches_the_mode():
    """The gradient of the penalised likelihood is 0 there: two classes, 40 points."""
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).float()
    words = ["method.name=sngp", "method.random_features=50", "method.kernel_variance=2", "optimizer.name=adam",
             "optimizer.lr=0.05", "optimizer.epochs=400", "optimizer.select=last", "optimizer.reweight=none",
             "optimizer.l2=0.5", "optimizer.augment=none"]  # fmt: skip
    run = load_run(None, words, data="points")
    batches = array_batches(x.numpy(), y.numpy(), 40, 0, torch.device("cpu"))
    posterior = sngp.fit(nn.Linear(2, 1), batches, run, Checkpoint(), Bernoulli())
    head, phi = posterior.model.head, posterior.model.features(x)
    weights = [p.detach().requires_grad_() for p in head.parameters()]
    loss = 40 * Bernoulli().mean_loss(phi @ weights[0].T + weights[1], y) + 0.5 * sum(
        p.square().sum() for p in weights
    )
    gradients = torch.autograd.grad(loss, weights)
    assert max(float(g.abs().max()) for g in gradients) < 0.02


def test_the_layers_of_a_trunk_are_bounded_and_its_random_features_saved():
    run = load_run(None, ["method.name=sngp", "method.random_features=20"], data="d")
    one, two = (sngp.build(build_model(ModelConfig(name="lenet"), seed), run, Bernoulli()) for seed in (0, 1))
    assert sum(isinstance(m, SpectralBound) for m in one.model.modules()) > 2
    two.restore(one.state())
    images = torch.rand(2, 3, 32, 32)
    args = (images, 3, torch.Generator().manual_seed(0))
    assert torch.equal(one.predict(*args), two.predict(*args))
