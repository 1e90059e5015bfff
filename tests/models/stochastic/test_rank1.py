"""Rank-1 layers: what they compute, whose rows are whose, and their divergence."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.nn import functional

from retinabench.models.stochastic.drawing import Draw, use_draws, use_generator
from retinabench.models.stochastic.rank1 import Rank1


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rank1(layer, *, components=3, positive=0.75, prior_mean="sign", prior_stddev=0.05, clip=None, seed=0):
    return Rank1(
        layer,
        components=components,
        positive=positive,
        prior_mean=prior_mean,
        prior_stddev=prior_stddev,
        clip=clip,
        generator=generator(seed),
    )


@torch.no_grad()
def without_noise(layer):
    for rho in (layer.input_rho, layer.output_rho):
        rho.fill_(-40)
    return layer


@pytest.mark.parametrize(
    "layer", [nn.Linear(4, 6), nn.Conv2d(4, 6, 3, padding=1)], ids=["linear", "convolution"]
)
def test_each_component_is_the_layer_with_the_weight_times_its_outer_product(layer):
    made = without_noise(rank1(layer)).eval()
    x = torch.randn(2, 4, *(() if made.is_linear else (5, 5)), generator=generator(1))
    use_draws(made, [Draw(generator(), number) for number in range(7)])
    out = made(torch.cat([x] * 7)).chunk(7)
    for number in range(7):
        r, s = made.input_mean[number % 3], made.output_mean[number % 3]
        weight = layer.weight * torch.outer(s, r).view(6, 4, *[1] * (layer.weight.ndim - 2))
        expected = made.operation(x, weight, layer.bias)
        assert torch.allclose(out[number], expected, atol=1e-5)
    assert not torch.allclose(out[0], out[1])


def test_rows_of_a_training_batch_take_turns_and_each_has_its_own_noise():
    made = rank1(nn.Linear(4, 6))
    x = torch.randn(1, 4, generator=generator(1)).repeat(9, 1)
    use_generator(made, generator(2))
    out = made(x)
    assert len(out.unique(dim=0)) == 9
    without_noise(made)
    out = made(x)
    assert torch.equal(out[0], out[3])
    assert torch.equal(out[1], out[7])
    assert len(out.unique(dim=0)) == 3


def test_factors_have_the_stated_mean_deviation_and_signs():
    made = rank1(nn.Linear(500, 400), components=2)
    signs = made.input_mean.detach()
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    # 1,000 signs: standard error sqrt(.75 * .25 / 1000) = 0.014; four of them.
    assert float((signs > 0).float().mean()) == pytest.approx(0.75, abs=0.055)
    stddev = functional.softplus(made.input_rho.detach())
    # Dropout with rate 0.001; the median of the ρ is its centre.
    assert float(stddev.median()) == pytest.approx(math.sqrt(0.001 / 0.999), rel=0.02)


def test_the_divergence_is_the_mean_over_components():
    made = rank1(nn.Linear(5, 4), components=3, prior_mean="one")
    source = generator(3)
    made.input_mean.data = 1 + 0.1 * torch.randn(3, 5, generator=source)
    q = torch.distributions.Normal(made.input_mean, functional.softplus(made.input_rho))
    expected = torch.distributions.kl_divergence(q, torch.distributions.Normal(1, 0.05)).sum(dim=1).mean()
    assert float(made.kl_terms()[0].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_the_published_prior_fights_the_signs_and_ours_does_not():
    published, ours = (
        rank1(nn.Linear(400, 1), components=1, prior_mean=p).kl_terms()[0] for p in ("one", "sign")
    )
    negative = int((rank1(nn.Linear(400, 1), components=1).input_mean < 0).sum())
    # (-1 - 1)² / (2 * 0.05²) = 800 nats for each -1.
    assert float((published - ours).detach()) == pytest.approx(800 * negative, rel=1e-4)


@pytest.mark.parametrize(("mean", "stddev"), [(1.05, 0.03), (-0.9, 0.06), (0.8, 0.05)])
def test_the_prior_of_the_sign_is_the_symmetric_mixture_up_to_log_two(mean, stddev):
    def integrand(x):
        log_p = np.logaddexp(stats.norm.logpdf(x, 1, 0.05), stats.norm.logpdf(x, -1, 0.05)) - math.log(2)
        return stats.norm.pdf(x, mean, stddev) * (stats.norm.logpdf(x, mean, stddev) - log_p)

    exact, _ = integrate.quad(integrand, mean - 10 * stddev, mean + 10 * stddev)
    made = rank1(nn.Linear(1, 1), components=1)
    made.input_mean.data.fill_(mean)
    made.input_rho.data.fill_(math.log(math.expm1(stddev)))
    assert float(made.kl_terms()[0].detach()) + math.log(2) == pytest.approx(exact, rel=1e-4)


def test_samples_are_clipped_where_asked():
    made = rank1(nn.Linear(50, 1), components=1, clip=1.01)
    use_generator(made, generator())
    drawn = made._sample(
        made.input_mean, made.input_rho, torch.zeros(100, dtype=torch.long), Draw(generator(1))
    )
    assert float(drawn.detach().abs().max()) == pytest.approx(1.01)
