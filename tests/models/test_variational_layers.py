import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional

from retinabench.models.stochastic import variational
from retinabench.models.stochastic.drawing import Draw, use_draws, use_generator
from retinabench.models.stochastic.variational import FAMILIES, Prior, Variational, gaussian_kl, radial_kl, radial_noise
from support.helpers import generator


def golden_terms(shared):
    golden = np.load(shared("golden", "retina", "kl_terms.npz"))
    mean, stddev = (torch.from_numpy(golden[f"in_{name}"]) for name in ("mean", "stddev"))
    return golden, mean, stddev, float(golden["in_prior_stddev"])


def test_gaussian_kl_is_the_reference(shared):
    golden, mean, stddev, _ = golden_terms(shared)
    rank1 = gaussian_kl(mean - 1, stddev, 0.05)
    assert float(rank1) == pytest.approx(float(golden["out_rank1_style_mean1_sd005"]), rel=1e-5)


@pytest.mark.parametrize(("tied", "name"), [("tied", "out_tied"), ("zero", "out_untied_mean0")])
def test_a_layer_s_kl_is_the_reference_with_he_s_prior(shared, tied, name):
    golden, mean, stddev, prior = golden_terms(shared)
    layer = torch.nn.Conv2d(4, 5, 3)
    layer.weight.data = mean.permute(3, 2, 0, 1).contiguous()  # the reference's axes are (H, W, in, out)
    options = {"family": FAMILIES["gaussian"], "prior": Prior(tied), "flipout": True, "stddev": (0.01, 0.0)}
    made = Variational(layer, **options, generator=generator())
    assert made.prior_stddev == pytest.approx(prior, rel=1e-12)
    assert made.prior_stddev == pytest.approx(float(golden["out_he_prior_stddev_conv3x3_cin4"]))
    made.rho.data = torch.log(torch.expm1(stddev.permute(3, 2, 0, 1)))
    (term,) = made.kl_terms()
    assert float(term.detach()) / int(golden["in_dataset_size"]) == pytest.approx(float(golden[name]), rel=1e-4)


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
        noise = variational.per_filter_noise(torch.Size((6, 4, 3, 3)), source)
        each = noise.norm(dim=0)
        assert torch.allclose(each, each.flatten()[0].expand_as(each), rtol=1e-5)
        norms.append(float(each.flatten()[0]))
    assert stats.kstest(norms, stats.halfnorm.cdf).pvalue > 1e-3


def test_radial_entropy_in_one_dimension_is_the_normal_s():
    assert variational.radial_entropy(1) == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=1e-12)


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
    radius = torch.from_numpy(stats.halfnorm.logpdf(distance.numpy()))
    log_q = radius - surface - (size - 1) * distance.log() - stddev.log().sum()
    log_p = torch.distributions.Normal(0, prior).log_prob(offset + stddev * noise).sum(dim=1)
    estimate = log_q - log_p
    error = float(estimate.std()) / math.sqrt(draws)
    # Four standard errors.
    assert float(radial_kl(offset, stddev, prior)) == pytest.approx(float(estimate.mean()), abs=4 * error)


def test_per_filter_kl_is_the_sum_over_the_vectors():
    stddev = torch.rand(5, 3, 2, 2, generator=generator(4), dtype=torch.float64) + 0.1
    offset = torch.randn(5, 3, 2, 2, generator=generator(5), dtype=torch.float64)
    vectors = zip(offset.flatten(1).T, stddev.flatten(1).T, strict=True)
    by_hand = sum(float(radial_kl(o, s, 0.7)) for o, s in vectors)
    assert float(variational.per_filter_kl(offset, stddev, 0.7)) == pytest.approx(by_hand, rel=1e-12)


def around(layer, *, family="gaussian", flipout=True, stddev=(0.3, 0.5), seed=0):
    options = {"family": FAMILIES[family], "prior": Prior("zero"), "flipout": flipout, "stddev": stddev}
    return Variational(layer, **options, generator=generator(seed))


def many_outputs(layer, x, draws, seed):
    """(draws, rows, outputs): each draw a pass of its own, with one generator for all."""
    source = generator(seed)
    use_draws(layer, [Draw(source)] * draws)
    with torch.no_grad():
        return layer(x.repeat(draws, 1)).view(draws, len(x), -1)


def linear(seed=1):
    layer = nn.Linear(4, 3)
    source = generator(seed)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=source)
    return layer


@pytest.mark.parametrize("estimator", ["one weight", "flipout", "evaluation"])
def test_outputs_have_the_mean_and_variance_of_the_closed_form(estimator):
    layer = around(linear(), flipout=estimator == "flipout").train(estimator != "evaluation")
    x = torch.randn(2, 4, generator=generator(2))
    draws = 4000
    outputs = many_outputs(layer, x, draws, seed=3)
    mean = functional.linear(x, layer.weight, layer.bias).detach()
    variance = functional.linear(x.square(), layer.stddev.square()).detach()
    # Standard errors: sqrt(variance / 4000) of the mean, 2.2 % (Gaussian) of the variance; five of them.
    assert ((outputs.mean(dim=0) - mean).abs() < 5 * (variance / draws).sqrt()).all()
    assert torch.allclose(outputs.var(dim=0), variance, rtol=0.12)
    covariance = ((outputs[:, 0] - mean[0]) * (outputs[:, 1] - mean[1])).mean(dim=0)
    shared = functional.linear((x[0] * x[1])[None], layer.stddev.square())[0].detach()
    scale = variance.prod(dim=0).sqrt()
    # One weight couples the rows as the closed form says; flipout's rows are uncorrelated.
    expected = torch.zeros(3) if estimator == "flipout" else shared
    assert ((covariance - expected).abs() < 5 * 1.5 * scale / draws**0.5).all()


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False),
        nn.Conv2d(4, 4, (3, 1), padding="same", groups=4), nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
    ],
    ids=["plain", "strided, dilated, grouped", "depthwise", "reflecting"],
)  # fmt: skip
def test_flipout_convolution_is_a_convolution_with_each_row_s_own_weight(layer):
    made = around(layer, seed=7)
    x = torch.randn(5, 4, 8, 8, generator=generator(8))
    use_generator(made, generator(9))
    out = made(x).detach()
    source = generator(9)  # the same noise again, by hand
    noise = FAMILIES["gaussian"].noise(made.weight.shape, source)
    into = torch.randint(2, (5, 4), generator=source).float() * 2 - 1
    onto = torch.randint(2, (5, layer.out_channels), generator=source).float() * 2 - 1
    for row in range(5):
        # Output channel o of group g sees the input channels of g: their signs, in the weight's second axis.
        signs = into[row].view(layer.groups, -1).repeat_interleave(layer.out_channels // layer.groups, dim=0)
        weight = made.weight + made.stddev * noise * onto[row][:, None, None, None] * signs[:, :, None, None]
        expected = layer._conv_forward(x[row : row + 1], weight, layer.bias)[0]
        assert torch.allclose(out[row], expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_spread_it_is_the_replaced_layer(family):
    layer = nn.Conv2d(3, 5, 3, padding=1).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6, generator=generator(1))
    expected = layer(x).detach()
    made = around(layer, family=family, stddev=(1e-12, 0.0))
    use_generator(made, generator())
    for mode in (True, False):
        assert torch.allclose(made.train(mode)(x), expected, atol=1e-6)
    assert made.rho.is_contiguous(memory_format=torch.channels_last)
