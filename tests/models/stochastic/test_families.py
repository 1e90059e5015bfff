"""Noise and divergences of weight posteriors: the reference's own outputs, closed forms, Monte Carlo."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from retinabench.models.stochastic.families import (
    FAMILIES,
    gaussian_kl,
    per_filter_kl,
    per_filter_noise,
    radial_entropy,
    radial_kl,
    radial_noise,
)
from retinabench.models.stochastic.variational import Prior, Variational


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def golden_terms(shared):
    golden = np.load(shared("golden", "retina", "kl_terms.npz"))
    mean, stddev = (torch.from_numpy(golden[f"in_{name}"]) for name in ("mean", "stddev"))
    return golden, mean, stddev, float(golden["in_prior_stddev"])


def test_gaussian_kl_is_the_reference(shared):
    # The reference divides by the number of training images, in single precision: six digits.
    golden, mean, stddev, prior = golden_terms(shared)
    images = int(golden["in_dataset_size"])
    tied = gaussian_kl(None, stddev, prior) / images
    untied = gaussian_kl(mean, stddev, prior) / images
    rank1 = gaussian_kl(mean - 1, stddev, 0.05)
    assert float(tied) == pytest.approx(float(golden["out_tied"]), rel=1e-5)
    assert float(untied) == pytest.approx(float(golden["out_untied_mean0"]), rel=1e-5)
    assert float(rank1) == pytest.approx(float(golden["out_rank1_style_mean1_sd005"]), rel=1e-5)


@pytest.mark.parametrize(("tied", "name"), [("tied", "out_tied"), ("zero", "out_untied_mean0")])
def test_a_layer_s_kl_is_the_reference_with_he_s_prior(shared, tied, name):
    golden, mean, stddev, prior = golden_terms(shared)
    layer = torch.nn.Conv2d(4, 5, 3)
    layer.weight.data = mean.permute(3, 2, 0, 1).contiguous()  # the reference's axes are (H, W, in, out)
    made = Variational(
        layer,
        family=FAMILIES["gaussian"],
        prior=Prior(tied),
        flipout=True,
        stddev=(0.01, 0.0),
        generator=generator(),
    )
    assert made.prior_stddev == pytest.approx(prior, rel=1e-12)
    assert made.prior_stddev == pytest.approx(float(golden["out_he_prior_stddev_conv3x3_cin4"]))
    made.rho.data = torch.log(torch.expm1(stddev.permute(3, 2, 0, 1)))
    (term,) = made.kl_terms()
    assert float(term.detach()) / int(golden["in_dataset_size"]) == pytest.approx(
        float(golden[name]), rel=1e-4
    )


def test_radial_noise_has_a_half_normal_norm_and_no_preferred_direction():
    shape, draws = torch.Size((6, 4, 3, 3)), 2000
    source = generator(1)
    noise = torch.stack([radial_noise(shape, source).flatten() for _ in range(draws)])
    # Seed 1; a true hypothesis is rejected at this level once in a thousand seeds.
    assert stats.kstest(noise.norm(dim=1).numpy(), stats.halfnorm.cdf).pvalue > 1e-3
    size = shape.numel()
    # E ε_i² = 1 / D: all D entries together have relative standard error sqrt(2 / 2000) = 3.2 %.
    assert float(noise.square().mean() * size) == pytest.approx(1, abs=0.13)
    assert float(noise.mean(dim=0).abs().max()) < 5 * math.sqrt(1 / size / draws)


def test_per_filter_noise_has_one_norm_for_every_vector_of_outputs():
    source = generator(2)
    norms = []
    for _ in range(1500):
        noise = per_filter_noise(torch.Size((6, 4, 3, 3)), source)
        each = noise.norm(dim=0)
        assert torch.allclose(each, each.flatten()[0].expand_as(each), rtol=1e-5)
        norms.append(float(each.flatten()[0]))
    assert stats.kstest(norms, stats.halfnorm.cdf).pvalue > 1e-3


def test_radial_entropy_in_one_dimension_is_the_normal_s():
    assert radial_entropy(1) == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_radial_kl_is_its_monte_carlo_estimate(size):
    stddev = torch.linspace(0.3, 1.2, size, dtype=torch.float64)
    offset = torch.linspace(-0.4, 0.7, size, dtype=torch.float64)
    source, prior, draws = generator(3), 0.9, 40_000
    z = torch.randn(draws, size, generator=source, dtype=torch.float64)
    noise = z / z.norm(dim=1, keepdim=True) * torch.randn(draws, 1, generator=source, dtype=torch.float64)
    # The density at distance d is that of |r| there, spread over the sphere of radius d.
    distance = noise.norm(dim=1)
    surface = math.log(2) + size / 2 * math.log(math.pi) - math.lgamma(size / 2)
    log_q = (
        torch.from_numpy(stats.halfnorm.logpdf(distance.numpy()))
        - surface
        - (size - 1) * distance.log()
        - stddev.log().sum()
    )
    log_p = torch.distributions.Normal(0, prior).log_prob(offset + stddev * noise).sum(dim=1)
    estimate = log_q - log_p
    error = float(estimate.std()) / math.sqrt(draws)
    # Four standard errors.
    assert float(radial_kl(offset, stddev, prior)) == pytest.approx(float(estimate.mean()), abs=4 * error)


def test_one_dimensional_radial_is_gaussian():
    offset, stddev = torch.tensor([0.3]), torch.tensor([0.2])
    assert float(radial_kl(offset, stddev, 0.5)) == pytest.approx(
        float(gaussian_kl(offset, stddev, 0.5)), abs=1e-6
    )


def test_per_filter_kl_is_the_sum_over_the_vectors():
    stddev = torch.rand(5, 3, 2, 2, generator=generator(4), dtype=torch.float64) + 0.1
    offset = torch.randn(5, 3, 2, 2, generator=generator(5), dtype=torch.float64)
    vectors = zip(offset.flatten(1).T, stddev.flatten(1).T, strict=True)
    by_hand = sum(float(radial_kl(o, s, 0.7)) for o, s in vectors)
    assert float(per_filter_kl(offset, stddev, 0.7)) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_divergence_is_negative_and_the_gaussian_s_vanishes_at_the_prior(name):
    stddev = torch.full((7, 5), 0.3, dtype=torch.float64)
    kl = FAMILIES[name].kl(None, stddev, 0.3)
    assert float(FAMILIES[name].kl(torch.zeros_like(stddev), stddev, 0.3)) == float(kl)
    assert float(kl) == pytest.approx(0, abs=1e-9) if name == "gaussian" else float(kl) > 0


def test_the_divergence_of_the_radial_noise_is_least_where_its_size_is_the_prior_s():
    # d/dσ: σ² / D = τ², so the best σ is sqrt(D) τ: it makes up for the 1 / D of the noise's variance.
    size, prior = 50, 0.2
    kls = {factor: float(radial_kl(torch.zeros(size), torch.full((size,), factor * math.sqrt(size) * prior), prior))
           for factor in (0.9, 1.0, 1.1)}  # fmt: skip
    assert min(kls, key=kls.get) == 1.0
