"""Mean-field Gaussian of all weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from retinabench.core.errors import InputError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods import gaussian_vi
from retinabench.methods.gaussian_vi import Scales, bound, kl_to_zero_mean_prior
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def opened(tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))

    def open_run(*words):
        words = [*TINY[3:], "model.name=lenet", "method.name=gaussian_vi", *words]
        run = load_run(None, words, data=prepared)
        return run, make_batches(run, load_task(run.data, run.task), torch.device("cpu"))

    return open_run


def test_the_divergence_is_that_of_independent_gaussians():
    mean, std = torch.randn(3, 4, generator=generator()), torch.rand(3, 4, generator=generator(1)) + 0.1
    oracle = kl_divergence(Normal(mean, std), Normal(0.0, 0.5)).sum()
    assert torch.allclose(kl_to_zero_mean_prior(mean, std, 4.0), oracle, rtol=1e-6)
    assert float(kl_to_zero_mean_prior(torch.zeros(5), torch.full((5,), 0.5), 4.0)) == pytest.approx(
        0, abs=1e-6
    )


def test_the_bound_is_its_two_terms_over_all_parameters(opened):
    """With no width to speak of the likelihood is the network's; the divergence, biases included, is over N images."""
    run, data = opened("method.std=1e-6", "optimizer.l2=0.01", "optimizer.reweight=none")
    model = build_model(run.model, 0)
    images, labels = next(data.epoch(0))
    terms = bound(model, Scales(model, 1e-6), data, run, Bernoulli())(images, labels, BatchInfo.of(labels))
    plain = nn.functional.binary_cross_entropy_with_logits(model(images).squeeze(1), labels)
    assert terms["cross_entropy"].item() == pytest.approx(plain.item(), rel=1e-4)
    prior_precision = 2 * 64 * 0.01
    expected = sum(
        kl_divergence(Normal(p, 1e-6), Normal(0.0, prior_precision**-0.5)).sum().item()
        for p in model.parameters()
    )
    assert terms["kl"].item() == pytest.approx(expected / 64, rel=1e-4)
    cold = run.model_copy(update={"method": run.method.model_copy(update={"kl_temperature": 0.25})})
    quarter = bound(model, Scales(model, 1e-6), data, cold, Bernoulli())(
        images, labels, BatchInfo.of(labels)
    )["kl"]
    assert quarter.item() == pytest.approx(0.25 * terms["kl"].item(), rel=1e-6)


def test_draws_come_in_pairs(opened):
    """Two draws of a linear loss average to the loss at the mean: no noise is left. One draw alone has it."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            drawn.append(self.w.detach().clone())
            return (x.flatten(1)[:, :3] @ self.w)[:, None]

    run, data = opened("method.train_samples=3", "optimizer.reweight=none")
    drawn, model = [], Linear()
    images, labels = next(data.epoch(0))
    bound(model, Scales(model, 0.3), data, run, Bernoulli())(images, labels, BatchInfo.of(labels))
    assert torch.allclose(drawn[0] + drawn[1], torch.full((3,), 2.0))
    assert not torch.allclose(drawn[0], drawn[2])
    assert not torch.allclose(drawn[1], drawn[2])


def test_the_start_is_as_wide_as_asked():
    stds = Scales(nn.Linear(3, 2), 0.02).stds()
    for std in stds.values():
        assert torch.allclose(std, torch.full_like(std, 0.02), rtol=1e-5)
    assert set(stds) == {"weight", "bias"}


def test_without_a_prior_it_refuses(opened):
    run, data = opened("optimizer.l2=0")
    with pytest.raises(InputError, match=r"prior from optimizer.l2, which is 0. Set optimizer.l2"):
        gaussian_vi.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())


def test_a_strong_prior_is_all_that_is_left_where_it_outweighs_the_data(opened):
    """N(0, s²) with s = 0.02: every std goes there, biases included, within the noise of Adam's last steps."""
    words = [f"optimizer.l2={1 / (2 * 64 * 0.02**2)}", "optimizer.name=adam", "optimizer.lr=0.03"]
    run, data = opened(*words, "optimizer.epochs=100", "optimizer.batch_size=64", "method.std=0.01")
    posterior = gaussian_vi.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
    for name, std in posterior.stds.items():
        assert float(std.mean()) == pytest.approx(0.02, rel=0.05), name
    assert math.isfinite(sum(p.abs().max().item() for p in posterior.model.parameters()))
    images = next(data.rows(data.validation))[0][:2]
    probs = posterior.predict(images, 3, generator())
    assert (probs[0] != probs[1]).any()
