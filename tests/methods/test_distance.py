"""DDU, SNGP and spectral norms."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.neighbors import NearestNeighbors
from torch import nn

from retinabench.core.errors import InputError
from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.methods import distance_aware, laplace
from retinabench.methods.distance_aware import bound_spectral_norms
from retinabench.methods.feature_scores import FeatureScores, ScoredPosterior
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.likelihood import Bernoulli, Gaussian
from retinabench.metrics.image_sets import referral_uncertainty
from retinabench.models.last_layer import split_last_layer
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

CPU = Resources("cpu")


def case(images, features):
    random = np.random.default_rng(0)
    values = random.normal(size=(images, features)) @ random.normal(size=(features, features)) / features**0.5
    labels = (np.arange(images) % 3 == 0).astype(int)
    return values + 2 * labels[:, None], labels, random.normal(size=(20, features))


def posterior_of(values, labels, density="class"):
    posterior = distance_aware.DensityPosterior(split_last_layer(nn.Linear(values.shape[1], 1)), Bernoulli(), density)
    distance_aware.estimate_densities(posterior, torch.from_numpy(values), torch.from_numpy(labels))
    return posterior


@pytest.mark.parametrize(("images", "features"), [(200, 6), (30, 40)])
def test_the_density_is_scipy_s_with_scikit_learn_s_shrinkage(images, features):
    """More features than images as well. Inputs are float32: 1e-4 relative."""
    values, labels, new = case(images, features)
    new = new.astype(np.float32)
    logs = []
    for one in (0, 1):
        mine = values[labels == one]
        covariance, _ = ledoit_wolf(mine)
        logs.append(np.log((labels == one).mean()) + multivariate_normal(mine.mean(0), covariance).logpdf(new))
    found = posterior_of(values, labels).uncertainty(torch.from_numpy(new)).numpy()
    assert np.allclose(found, -logsumexp(logs, axis=0), rtol=1e-6)


def test_mahalanobis_distances_have_one_covariance():
    values, labels, new = case(100, 5)
    means = np.stack([values[labels == one].mean(0) for one in (0, 1)])
    covariance, _ = ledoit_wolf(values - means[labels], assume_centered=True)
    gap = new.astype(np.float32)[:, None] - means
    expected = np.einsum("bci,ij,bcj->bc", gap, np.linalg.inv(covariance), gap).min(axis=1)
    found = posterior_of(values, labels, "mahalanobis").uncertainty(torch.from_numpy(new).float())
    assert np.allclose(found.numpy(), expected, rtol=1e-6)


def test_the_relative_distance_leaves_out_what_all_images_vary_in():
    values, labels, new = case(100, 5)
    whole = values.mean(0)
    gap = new.astype(np.float32) - whole
    means = np.stack([values[labels == k].mean(0) for k in (0, 1)])
    within = values - means[labels]
    _, shrinkage = ledoit_wolf(within, assume_centered=True)
    floor = shrinkage * np.square(within).mean()
    scatter = (1 - shrinkage) * np.cov(values.T, bias=True) + floor * np.eye(5)
    of_all = np.einsum("bi,ij,bj->b", gap, np.linalg.inv(scatter), gap)
    alone = posterior_of(values, labels, "mahalanobis").uncertainty(torch.from_numpy(new).float()).numpy()
    found = posterior_of(values, labels, "relative").uncertainty(torch.from_numpy(new).float()).numpy()
    assert np.allclose(found, alone - of_all, rtol=1e-6)
    # All covariances differ along the line through the class means alone: what is far from it in another direction is no farther.
    across = np.linalg.svd(np.linalg.inv(scatter) @ (means[1] - means[0])[:, None])[0][:, 1]
    moved = posterior_of(values, labels, "relative").uncertainty(torch.from_numpy(new + 9 * across).float()).numpy()
    assert np.abs(moved - found).max() < 1e-2 * np.abs(alone).max()


def scored(values, **config):
    """The posterior of a last layer alone, with what it keeps of values (N, D)."""
    network = split_last_layer(nn.Linear(values.shape[1], config.pop("outputs", 3)))
    for parameter in network.head.parameters():  # the network's own start is drawn from the generator of the process
        nn.init.normal_(parameter, 0, 0.5, generator=torch.Generator().manual_seed(3))
    posterior = ScoredPosterior(network, Bernoulli(), FeatureScores.Config(**config))
    posterior.keep(torch.from_numpy(values), torch.Generator().manual_seed(0))
    weight, bias = (tensor.detach().double().numpy() for tensor in (network.head.weight, network.head.bias))
    return posterior, weight, bias


def test_neighbours_are_scikit_learn_s():
    values, _, new = case(80, 6)
    posterior, *_ = scored(values, score="knn", neighbours=7)
    oracle = NearestNeighbors(n_neighbors=7).fit(values / np.linalg.norm(values, axis=1, keepdims=True))
    unit = new.astype(np.float32).astype(float)
    distances, _ = oracle.kneighbors(unit / np.linalg.norm(unit, axis=1, keepdims=True))
    assert np.allclose(posterior.uncertainty(torch.from_numpy(new).float()).numpy(), distances[:, -1], atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
def test_vim_and_the_scores_of_logits_by_hand(outputs):
    """One logit f counts as two, -f/2 and f/2."""
    values, _, new = case(80, 6)
    new = new.astype(np.float32).astype(float)
    found, logits = {}, None
    for score in ("max_logit", "energy", "vim"):
        posterior, weight, bias = scored(values, score=score, outputs=outputs, directions=4)
        found[score] = posterior.uncertainty(torch.from_numpy(new).float()).numpy()
    if outputs == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    logits = new @ weight.T + bias
    assert np.allclose(found["max_logit"], -logits.max(axis=1), atol=1e-6)
    assert np.allclose(found["energy"], -logsumexp(logits, axis=1), atol=1e-6)
    origin = -np.linalg.pinv(weight) @ bias
    _, _, right = np.linalg.svd(values - origin, full_matrices=False)
    rest = right[4:]
    alpha = (values @ weight.T + bias).max(axis=1).mean() / np.linalg.norm((values - origin) @ rest.T, axis=1).mean()
    expected = alpha * np.linalg.norm((new - origin) @ rest.T, axis=1) - logsumexp(logits, axis=1)
    assert np.allclose(found["vim"], expected, atol=1e-6)


def test_a_class_of_one_image_has_no_covariance():
    with pytest.raises(InputError, match="class 1 has one training image"):
        posterior_of(np.zeros((5, 2)), np.array([0, 0, 0, 0, 1]))


def test_a_run_writes_it_and_referral_follows_it(tmp_path):
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "method.name=ddu"], data=str(data))
    folder = execute(run, tmp_path / "runs", CPU)
    predictions = read_predictions(folder / "predictions.parquet")
    values, name = referral_uncertainty(predictions)
    assert name == "own"
    assert np.array_equal(values, predictions.uncertainty)
    assert np.ptp(values) > 0


NOISE, LENGTH, AMPLITUDE = 0.3, 0.7, 2.0


def settings(**more):
    return distance_aware.Sngp.Config(length_scale=LENGTH, kernel_variance=AMPLITUDE, **more)


def test_random_features_have_the_kernel():
    """M = 20,000: each entry of the kernel has a standard error of at most a² / √M."""
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    features = distance_aware.RandomFeatures(3, settings(random_features=20_000), torch.Generator().manual_seed(1))(x)
    kernel = ConstantKernel(AMPLITUDE) * RBF(LENGTH * math.sqrt(3))
    assert np.abs((features @ features.T).numpy() - kernel(x.numpy())).max() < 5 * AMPLITUDE / math.sqrt(20_000)


def test_its_posterior_is_that_of_the_exact_gaussian_process():
    """Mean and std within 0.15 prior stds (a kernel of 600 random features has a standard error of 0.04); the noise is known."""
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (25, 1)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + NOISE * random.normal(size=25)).astype(np.float32)
    run = TrainingRun(method=settings(random_features=600, spectral_bound=0))
    run = run.model_copy(update={"optimizer": run.optimizer.model_copy(update={"reweight": "none"})})
    posterior = distance_aware.Sngp.build(nn.Linear(1, 2), run, Gaussian())
    head, batches = posterior.model.head, array_batches(x, y, 25, 0, torch.device("cpu"))
    raw = math.log(math.expm1(NOISE))
    with torch.no_grad():  # the mode, by ridge regression; the bias of the mean has a prior of its own
        phi = posterior.model.features(torch.from_numpy(x)).double()
        gram = phi @ phi.T + 1 + NOISE**2 * torch.eye(25)
        dual = torch.linalg.solve(gram, torch.from_numpy(y).double())
        head.weight[0], head.bias[0], head.bias[1] = (phi.T @ dual).float(), dual.sum().float(), raw
    posterior.model.eval()
    curvature = laplace.last_layer_curvature(posterior, batches, run)
    posterior.factor = distance_aware.inverse_root(curvature).float()
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


def largest(weight):
    return np.linalg.svd(weight.detach().flatten(1).numpy(), compute_uv=False)[0]


def test_a_norm_above_the_bound_becomes_the_bound_and_one_below_stays():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4))
    before = [model[0].weight.detach().clone(), model[2].weight.detach().clone()]
    with torch.no_grad():
        model[0].weight.mul_(20)
        model[2].weight.mul_(0.01)
    bound_spectral_norms(model, 1.5, TrainingRun())
    for _ in range(100):  # a power iteration each
        model.train()(torch.randn(2, 3, 3, 3))
    assert abs(largest(model.eval()[0].weight) - 1.5) < 0.01
    assert torch.allclose(model[2].weight, 0.01 * before[1])
    assert torch.allclose(model[0].weight / largest(model[0].weight), before[0] / largest(before[0]), atol=1e-5)
