"""Mean-field Gaussian of all weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.gaussian_vi import Scales, bound
from retinabench.methods.training.gradients import BatchInfo
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared


@pytest.fixture
def opened(tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))

    def open_run(*words):
        words = [*TINY[3:], "model.name=lenet", "method.name=gaussian_vi", *words]
        run = load_run(None, words, data=prepared)
        return run, make_batches(run, load_task(run.data, run.task), torch.device("cpu"))

    return open_run


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
        kl_divergence(Normal(p, 1e-6), Normal(0.0, prior_precision**-0.5)).sum().item() for p in model.parameters()
    )
    assert terms["kl"].item() == pytest.approx(expected / 64, rel=1e-4)
    cold = run.model_copy(update={"method": run.method.model_copy(update={"kl_temperature": 0.25})})
    quarter = bound(model, Scales(model, 1e-6), data, cold, Bernoulli())(images, labels, BatchInfo.of(labels))["kl"]
    assert quarter.item() == pytest.approx(0.25 * terms["kl"].item(), rel=1e-6)
