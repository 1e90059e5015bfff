"""SWAG: its moments against NumPy's, its Gaussian against the formula, SGD's known stationary spread."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.ensembles import swag, weight_moments
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_on_a_quadratic_it_measures_the_stationary_spread_of_sgd():
    """w ← w - r (a w + ξ), ξ ~ N(0, c), is stationary with variance r c / (2 a - r a²) (Mandt et al. 2017).

    4,000 independent copies, 200 iterates 30 steps apart, whose correlation is 0.9³⁰ = 0.04: the average over the
    copies has a relative error below √(2 / (4,000 · 200)) · 1.1 < 0.2 %; the mean that is fitted takes 1 / 200 off.
    """
    r, a, c = 0.1, 1.0, 2.0
    random, w = generator(), torch.zeros(4000)
    moments = weight_moments.Moments(4000, 20, torch.device("cpu"))
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
    collect = weight_moments.Moments.collect
    monkeypatch.setattr(
        weight_moments.Moments, "collect", lambda self, w: (seen.append(w.clone()), collect(self, w))[1]
    )
    checkpoint = Checkpoint()
    posterior = swag.fit(build_model(run.model, 0), data, run, checkpoint, Bernoulli())
    # 3 epochs of 4 steps, from step 6 on: the weights after steps 7 to 12.
    assert len(seen) == 6
    table = torch.stack(seen).double().numpy()
    assert np.allclose(weight_moments.flat_weights(posterior.model), table.mean(axis=0), atol=1e-6)
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
