"""Posteriors that draw all weights: predictions are passes with the drawn weights, whatever the batch."""

import pytest
import torch
from torch import nn

from retinabench.methods.posteriors.drawn_weights import WeightPosterior, point
from retinabench.methods.training.likelihood import Gaussian


def posterior(std):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    return WeightPosterior(
        model, Gaussian(), {name: torch.full_like(p, std) for name, p in model.named_parameters()}
    )


def test_predictions_have_the_mean_and_variance_of_a_linear_model_of_gaussian_weights():
    """Mean w·x + b, variance s² (|x|² + 1); 4,000 draws, four standard errors."""
    found, x = posterior(0.3), torch.tensor([[1.0, -2.0]])
    drawn = found.predict(x, 4000, torch.Generator().manual_seed(1))[:, 0, 0]
    variance = 0.3**2 * (5 + 1)
    assert float(drawn.mean()) == pytest.approx(
        float(found.model(x).detach()[0, 0]), abs=4 * (variance / 4000) ** 0.5
    )
    assert float(drawn.var()) == pytest.approx(variance, rel=4 * (2 / 4000) ** 0.5)


def test_a_sample_is_one_function_of_all_images():
    found, x = posterior(0.3), torch.randn(6, 2)
    generator = torch.Generator().manual_seed(1)
    whole = found.predict(x, 3, generator)
    parts = [found.predict(x[k : k + 2], 3, generator) for k in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_a_point_has_no_width_and_the_state_makes_the_round_trip():
    network = point(nn.Linear(2, 2), Gaussian())
    drawn = network.predict(torch.randn(3, 2), 4, torch.Generator())
    assert torch.equal(drawn, drawn[:1].expand_as(drawn))
    one, x = posterior(0.3), torch.randn(3, 2)
    network.restore(one.state())
    assert set(network.stds) == {"weight", "bias"}
    torch.testing.assert_close(
        network.predict(x, 2, torch.Generator().manual_seed(3)),
        one.predict(x, 2, torch.Generator().manual_seed(3)),
    )
