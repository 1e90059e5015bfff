"""MC dropout: noise at prediction, and nothing but its rate."""

import pytest
import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.methods import dropout
from retinabench.methods.training.likelihood import Gaussian


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
    posterior = dropout.build(Sum(), run, Gaussian())
    drawn = posterior.predict(torch.ones(40, 64), 100, torch.Generator().manual_seed(0))[..., 0].flatten()
    variance = rate / (1 - rate) / 64
    assert float(drawn.mean()) == pytest.approx(1, abs=4 * (variance / 4000) ** 0.5 + 1e-6)
    assert float(drawn.var()) == pytest.approx(variance, rel=4 * (2 / 4000) ** 0.5, abs=1e-12)
