"""Layers with a posterior weight: closed-form mean and variance, flipout against unfolded weights, gradient variance."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from retinabench.models.stochastic.drawing import Draw, use_draws, use_generator
from retinabench.models.stochastic.families import FAMILIES
from retinabench.models.stochastic.variational import Prior, Variational


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def around(layer, *, family="gaussian", flipout=True, stddev=(0.3, 0.5), seed=0):
    return Variational(
        layer,
        family=FAMILIES[family],
        prior=Prior("zero"),
        flipout=flipout,
        stddev=stddev,
        generator=generator(seed),
    )


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


def test_flipout_has_the_same_expected_gradient_with_far_less_variance():
    rows, trials = 64, 400
    x = torch.randn(rows, 4, generator=generator(4))
    target = torch.randn(rows, 3, generator=generator(5))
    gradients = {}
    for flipout in (False, True):
        layer = around(linear(), flipout=flipout)
        use_generator(layer, generator(6))
        found = []
        for _ in range(trials):
            loss = (layer(x) - target).square().sum(dim=1).mean()
            found.append(torch.stack(torch.autograd.grad(loss, [layer.weight, layer.rho])))
        gradients[flipout] = torch.stack(found)  # (trials, weight or ρ, 3, 4)
    one, flip = gradients[False], gradients[True]
    error = ((one.var(dim=0) + flip.var(dim=0)) / trials).sqrt()
    assert ((one.mean(dim=0) - flip.mean(dim=0)).abs() < 5 * error).all()
    by_weight, by_rho = (one.var(dim=0) / flip.var(dim=0)).flatten(1).mean(dim=1).tolist()
    # Means over the entries; with five seeds 9.0 to 11.5 times less for μ, 64 rows.
    assert by_weight > 6
    # The rows share ε², which no sign changes, so less is won for ρ: 2.1 to 3.0 times.
    assert by_rho > 1.4


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False),
        nn.Conv2d(4, 4, (3, 1), padding="same", groups=4),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
    ],
    ids=["plain", "strided, dilated, grouped", "depthwise", "reflecting"],
)
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
        assert torch.allclose(out[row], unfolded(layer, x[row : row + 1], weight.detach())[0], atol=1e-5)


def unfolded(layer, x, weight):
    """Convolution as a matrix product over patches."""
    top = layer._reversed_padding_repeated_twice
    x = functional.pad(x, top, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    height, width = (
        (size - d * (k - 1) - 1) // s + 1
        for size, d, k, s in zip(x.shape[2:], layer.dilation, layer.kernel_size, layer.stride, strict=True)
    )
    patches = functional.unfold(x, layer.kernel_size, layer.dilation, stride=layer.stride)
    patches = patches.view(layer.groups, -1, height * width)
    out = torch.bmm(weight.view(layer.groups, -1, patches.shape[1]), patches).view(1, -1, height, width)
    return out if layer.bias is None else out + layer.bias.detach()[:, None, None]


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


def test_the_initial_spread_is_as_stated():
    made = around(nn.Linear(300, 300), stddev=(0.02, 0.1))
    rho = made.rho.detach()
    centre = float(torch.tensor(0.02).expm1().log())
    # 90,000 draws of a normal cut at two deviations, whose deviation is 0.880 of the uncut one.
    assert float(rho.mean()) == pytest.approx(centre, abs=5 * 0.088 / 300)
    assert float(rho.std()) == pytest.approx(0.088, rel=0.02)
    assert float((rho - centre).abs().max()) <= 0.2 + 1e-5


def test_inputs_of_three_axes_go_through_a_linear_layer():
    made = around(linear())
    use_generator(made, generator())
    assert made(torch.zeros(2, 7, 4)).shape == (2, 7, 3)


def test_without_a_generator_it_refuses():
    with pytest.raises(RuntimeError, match="use_generator"):
        around(linear())(torch.zeros(1, 4))
