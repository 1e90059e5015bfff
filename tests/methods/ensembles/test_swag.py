"""SWAG: its moments against NumPy's, its Gaussian against the formula, SGD's known stationary spread."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.ensembles import swag
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_moments_are_those_of_the_collected_vectors():
    vectors = 0.1 + 1e-3 * torch.randn(
        30, 7, generator=generator()
    )  # a spread far below the mean, as of weights
    moments = swag.Moments(7, 5, torch.device("cpu"))
    for vector in vectors:
        moments.collect(vector)
    table = vectors.double().numpy()
    assert np.allclose(moments.mean, table.mean(axis=0), rtol=1e-5)
    assert np.allclose(moments.variance, table.var(axis=0), rtol=1e-4)
    running = np.cumsum(table, axis=0) / np.arange(1, 31)[:, None]
    assert np.allclose(moments.deviations, (table - running)[-5:], atol=1e-7)


def test_collecting_continues_after_saving():
    vectors = torch.randn(9, 4, generator=generator())
    whole, first, second = (swag.Moments(4, 3, torch.device("cpu")) for _ in range(3))
    for vector in vectors:
        whole.collect(vector)
    for vector in vectors[:5]:
        first.collect(vector)
    second.load_state_dict(first.state_dict())
    for vector in vectors[5:]:
        second.collect(vector)
    assert torch.equal(second.mean, whole.mean)
    assert torch.equal(second.variance, whole.variance)
    assert torch.equal(second.deviations, whole.deviations)


@pytest.mark.parametrize(
    "change", [{"count": None}, {"count": -1}, {"mean": torch.zeros(6)}, {"deviations": torch.zeros(7, 2)}]
)
def test_moments_of_another_network_are_refused(change):
    moments = swag.Moments(7, 5, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"count is|has shape"):
        moments.load_state_dict({**moments.state_dict(), **change})


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_samples_have_the_covariance_of_the_formula(scale):
    """scale (diag + Dᵀ D / (K - 1)); 10,000 draws, each entry within 5 standard errors √((ab + c²) / 10,000)."""
    mean, variance = torch.randn(6, generator=generator()), torch.rand(6, generator=generator(1))
    D = torch.randn(4, 6, generator=generator(2))
    draws, count = generator(3), 10_000
    sampled = torch.stack([swag.draw(mean, variance, D, scale, draws) for _ in range(count)])
    expected = scale * (variance.diag() + D.T @ D / 3)
    diagonal = expected.diagonal()
    error = ((diagonal[:, None] * diagonal + expected.square()) / count).sqrt()
    assert ((sampled.T.cov() - expected).abs() < 5 * error).all()
    assert ((sampled.mean(dim=0) - mean).abs() < 5 * (diagonal / count).sqrt()).all()


def test_on_a_quadratic_it_measures_the_stationary_spread_of_sgd():
    """w ← w - r (a w + ξ), ξ ~ N(0, c), is stationary with variance r c / (2 a - r a²) (Mandt et al. 2017).

    4,000 independent copies, 200 iterates 30 steps apart, whose correlation is 0.9³⁰ = 0.04: the average over the
    copies has a relative error below √(2 / (4,000 · 200)) · 1.1 < 0.2 %; the mean that is fitted takes 1 / 200 off.
    """
    r, a, c = 0.1, 1.0, 2.0
    random, w = generator(), torch.zeros(4000)
    moments = swag.Moments(4000, 20, torch.device("cpu"))
    for step in range(200 + 200 * 30):
        w = w - r * (a * w + c**0.5 * torch.randn(4000, generator=random))
        if step >= 200 and step % 30 == 0:
            moments.collect(w)
    assert float(moments.variance.mean()) == pytest.approx(
        r * c / (2 * a - r * a**2) * (1 - 1 / 200), rel=0.01
    )
    assert float(moments.mean.abs().mean()) < 0.05


def test_it_fits_the_iterates_of_its_own_training(tmp_path, monkeypatch):
    run = load_run(
        None, [*TINY, "method.name=swag", "method.start=0.5"], data=str(make_prepared(tmp_path / "data"))
    )
    data = make_batches(run, load_task(run.data, run.task), torch.device("cpu"))
    seen = []
    collect = swag.Moments.collect
    monkeypatch.setattr(
        swag.Moments, "collect", lambda self, w: (seen.append(w.clone()), collect(self, w))[1]
    )
    checkpoint = Checkpoint()
    posterior = swag.fit(build_model(run.model, 0), data, run, checkpoint, Bernoulli())
    # 3 epochs of 4 steps, from step 6 on: the weights after steps 7 to 12.
    assert len(seen) == 6
    table = torch.stack(seen).double().numpy()
    assert np.allclose(swag.flat_weights(posterior.model), table.mean(axis=0), atol=1e-6)
    assert np.allclose(posterior.variance, table.var(axis=0), rtol=1e-3, atol=1e-10)
    assert posterior.deviations.shape == (6, table.shape[1])
    # The last phase has a constant rate.
    assert checkpoint.history[-1]["lr"] == pytest.approx(0.1 * run.optimizer.lr)
    # Batch norm belongs to the mean weights, not to those that SGD passed through.
    sums = torch.stack(
        [posterior.model.conv1(images).mean(dim=(0, 2, 3)) for images, _ in data.epoch(run.optimizer.epochs)]
    )
    assert torch.allclose(posterior.model.bn1.running_mean, sums.mean(dim=0), atol=1e-5)


def test_a_step_in_parts_is_collected_once(tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))
    found = []
    for parts in (1, 2):
        words = ["method.name=swag", "method.start=0.5", f"optimizer.accumulate={parts}"]
        run = load_run(None, [*TINY, *words], data=prepared)
        data = make_batches(run, load_task(run.data, run.task), torch.device("cpu"))
        found.append(swag.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli()))
    assert found[0].deviations.shape == found[1].deviations.shape == (6, len(found[0].variance))


def test_weights_survive_the_flat_vector():
    model = build_model(load_run(None, TINY, data="d").model, 0)
    back = swag.named_weights(model, swag.flat_weights(model))
    for name, p in model.named_parameters():
        assert torch.equal(back[name], p)
        assert back[name].stride() == p.stride()
