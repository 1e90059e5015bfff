"""Laplace: its curvature against brute-force derivatives, its Gaussian and its evidence against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jacrev

from retinabench.core.errors import InputError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.posthoc import laplace
from retinabench.methods.posthoc.laplace_posterior import DiagonalPosterior, LastLayerPosterior
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Categorical
from retinabench.models.build import build_model
from retinabench.models.last_layer import split_last_layer, with_bias
from support.helpers import TINY, make_prepared


def hessian(function):
    return jacrev(jacrev(function))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def opened(tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))

    def open_run(*words):
        run = load_run(None, [*TINY, "method.name=laplace", *words], data=prepared)
        return run, make_batches(run, load_task(run.data, run.task), torch.device("cpu"))

    return open_run


def test_with_linear_regression_s_curvature_the_posterior_is_its_closed_form(opened):
    """At θ* = 0 the logistic curvature is that of linear regression with noise variance 4: Σ = (ΦᵀΦ / 4 + δ)⁻¹."""
    run, data = opened("optimizer.reweight=none")
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
    # Sampled logits have variance φᵀ Σ φ: 20,000 draws, 5 standard errors of a variance.
    probs = posterior.predict(pictures[:3], 20_000, generator())[..., 1].double()
    expected = torch.einsum("bi,ij,bj->b", phi[:3], closed, phi[:3])
    assert torch.allclose(probs.logit().var(dim=0), expected, rtol=5 * (2 / 20_000) ** 0.5 + 1e-3)


def test_reweighted_training_gives_reweighted_curvature(opened):
    for reweight in ("none", "minibatch"):
        run, data = opened(f"optimizer.reweight={reweight}")
        weights = torch.cat([w for _, w in laplace._weighted(data, run)])
        labels = torch.cat([y for _, y in data.rows(data.train)])
        assert len(weights) == len(data.train)
        positive, negative = weights[labels == 1].sum(), weights[labels == 0].sum()
        if reweight == "minibatch":
            assert float(positive) == pytest.approx(len(data.train) / 2, rel=1e-5)
            assert float(negative) == pytest.approx(len(data.train) / 2, rel=1e-5)
        else:
            assert float(positive) == float((labels == 1).sum())


def test_class_weights_are_those_of_the_labels_of_the_task(tmp_path):
    """A task with another cut of the grades has other labels, and so another reweighted likelihood."""
    run = load_run(
        None, [*TINY, "method.name=laplace", "optimizer.reweight=minibatch"],
        data=str(make_prepared(tmp_path / "data")),
    )  # fmt: skip
    task, found = load_task(run.data, run.task), {}
    for cut in (2, 4):
        data = replace(task.data, referable_from=cut)
        batches = make_batches(run, replace(task, data=data), torch.device("cpu"))
        posterior = laplace.build(build_model(run.model, 0), run, Bernoulli())
        network = posterior.model.eval()
        eigenvalues, _, _ = laplace.measure_last_layer(posterior, batches, run)
        grade = data.records.grade[batches.train]
        share = np.where(grade >= cut, (grade >= cut).mean(), (grade < cut).mean())
        with torch.no_grad():
            features = network.features(torch.cat([images for images, _ in batches.rows(batches.train)]))
            p = network.head(features)[:, 0].sigmoid().double()
        phi = with_bias(features).double()
        hessian = phi.T @ ((torch.from_numpy(0.5 / share) * p * (1 - p))[:, None] * phi)
        assert np.allclose(
            eigenvalues, np.linalg.eigvalsh(hessian.numpy()), rtol=1e-4, atol=1e-6 * eigenvalues.max()
        )
        found[cut] = eigenvalues
    assert not np.allclose(found[2], found[4], rtol=1e-2)


def test_the_validation_split_s_precision_predicts_it_better(opened):
    nlls = {}
    for choice in ("evidence", "validation"):
        run, data = opened("method.weights=diagonal", f"method.prior_precision={choice}")
        posterior = laplace.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
        assert isinstance(posterior, DiagonalPosterior)
        nlls[choice] = laplace.validation_scores(posterior, data, run, 0, run.method.samples)["nll"]
    assert nlls["validation"] < nlls["evidence"]


def test_a_given_precision_is_taken_and_a_wrong_one_refused(opened):
    run, data = opened("method.prior_precision=1e6")
    posterior = laplace.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
    assert isinstance(posterior, LastLayerPosterior)
    # The prior decides: the covariance is I / δ.
    size = len(posterior.factor)
    assert torch.allclose(posterior.factor @ posterior.factor.T, torch.eye(size) / 1e6, rtol=1e-3, atol=1e-9)
    for wrong in ("0.0", "-1.0", "-1", "0", "guess"):
        with pytest.raises(InputError, match="prior_precision"):
            opened(f"method.prior_precision={wrong}")


def test_it_works_on_a_network_without_bias_in_its_last_layer():
    network = split_last_layer(nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False)))
    posterior = LastLayerPosterior(network, Categorical(2), torch.eye(26))
    assert posterior.predict(torch.rand(4, 3, 2, 2), 3, generator()).shape == (3, 4, 2)


def test_samples_of_the_last_layer_are_many_where_nobody_says_how_many():
    assert laplace.Config().samples == 100
    assert laplace.Config(weights="diagonal").samples == 5
    assert laplace.Config(samples=7).samples == 7
