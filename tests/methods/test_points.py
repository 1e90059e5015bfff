"""MAP, MC dropout, and its deterministic control."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.dropout import McDropout
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.likelihood import Gaussian
from retinabench.models.stochastic.dropout import Dropout
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared


class Sum(nn.Module):
    """The mean of many positive activations, and a raw std."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x):
        mean = self.act(x).mean(dim=1)
        return torch.stack([mean, torch.zeros_like(mean)], dim=1)


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_samples_have_the_mean_of_the_network_and_the_variance_of_the_masks(rate):
    """Of n = 64 ones: mean 1, variance rate / (1 - rate) / n; 4,000 draws, four standard errors."""
    run = load_run(None, ["method=dropout", f"method.rate={rate}"], data="d")
    posterior = McDropout.build(Sum(), run, Gaussian())
    drawn = posterior.predict(torch.ones(40, 64), 100, torch.Generator().manual_seed(0))[..., 0].flatten()
    variance = rate / (1 - rate) / 64
    assert float(drawn.mean()) == pytest.approx(1, abs=4 * (variance / 4000) ** 0.5 + 1e-6)
    assert float(drawn.var()) == pytest.approx(variance, rel=4 * (2 / 4000) ** 0.5, abs=1e-12)


DROPOUT = ["method.name=dropout", "method.rate=0.3", "method.samples=4"]
OFF = ["method.name=dropout_off", *(word.replace("method.", "method.member.") for word in DROPOUT)]


def test_the_weights_are_those_of_the_dropout_run_which_is_trained_once(tmp_path, monkeypatch):
    data = str(make_prepared(tmp_path / "data"))
    out, cpu = tmp_path / "runs", Resources("cpu")
    sampled, off = (load_run(None, [*TINY, *words], data=data) for words in (DROPOUT, OFF))
    folder = execute(sampled, out, cpu)
    monkeypatch.setattr(loop, "_epoch", lambda *given: pytest.fail("trained again"))
    deterministic = execute(off, out, cpu)
    one, other = (load_tensors(path / "posterior.pt") for path in (folder, deterministic))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)

    found = read_predictions(deterministic / "predictions.parquet")
    assert (found.samples, found.metadata["title"]) == (1, "Deterministic")
    # The network of the dropout run with every mask at its mean gives the same probabilities.
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    _, trained = load_posterior(folder)
    for module in trained.model.modules():
        if isinstance(module, Dropout):
            module.steps = 0
    _, posterior = load_posterior(deterministic)
    expected = trained.predict(images, 2, torch.Generator().manual_seed(0))
    assert torch.equal(posterior.predict(images, 5, torch.Generator()), expected[:1])
    assert not np.array_equal(found.prob, read_predictions(folder / "predictions.parquet").prob)
