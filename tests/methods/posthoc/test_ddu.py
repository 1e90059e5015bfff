"""DDU: densities against SciPy, shrinkage against scikit-learn, and the column that a run writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.posthoc import ddu
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.models.build import build_model
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
    posterior = ddu.DensityPosterior(split_last_layer(nn.Linear(values.shape[1], 1)), Bernoulli(), density)
    ddu.estimate_densities(posterior, torch.from_numpy(values), torch.from_numpy(labels))
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
        logs.append(
            np.log((labels == one).mean()) + multivariate_normal(mine.mean(0), covariance).logpdf(new)
        )
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


def test_features_that_never_vary_have_a_density():
    values, labels, new = np.zeros((10, 3)), np.arange(10) % 2, torch.ones(2, 3)
    assert posterior_of(values, labels).uncertainty(new).isfinite().all()


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
    _, posterior = load_posterior(folder)
    assert len(posterior.gaussians) == 2
    images = torch.rand(3, 3, 16, 16)
    one = posterior.uncertainty(images)
    other = ddu.build(*_fresh(run), Bernoulli())
    other.restore(posterior.state())
    assert torch.equal(one, other.uncertainty(images))
    pooled = load_run(
        None, [*TINY, "method.name=ensemble", "method.members=2", "method.member.name=ddu"], data=str(data)
    )
    both = read_predictions(execute(pooled, tmp_path / "runs", CPU) / "predictions.parquet")
    assert both.uncertainty is not None
    assert not np.array_equal(both.uncertainty, predictions.uncertainty)


def _fresh(run):
    return build_model(run.model, 5), run
