"""Layers of K members."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from retinabench.models.stochastic.drawing import Draw, use_draws, use_generator
from retinabench.models.stochastic.shared_weights import (
    BatchEnsembleLayer,
    LowRank,
    Members,
    OuterProduct,
    Rank1Layer,
)


class Fixed(OuterProduct):
    """Factors that are parameters."""

    def __init__(self, layer, pairs):
        super().__init__(layer, pairs)
        outputs, groups = layer.weight.shape[0], getattr(layer, "groups", 1)
        self.into = nn.Parameter(torch.randn(pairs, layer.weight.shape[1] * groups))
        self.out = nn.Parameter(torch.randn(pairs, outputs))
        self.bias = nn.Parameter(torch.randn(pairs, outputs))

    def factors(self, chosen, draw):
        return self.into[chosen], self.out[chosen]

    def biases(self, chosen):
        return self.bias[chosen]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(4, 3), (4,)),
        (lambda: nn.Conv2d(4, 6, 3, padding=1), (4, 5, 5)),
        (lambda: nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    ],
)
def test_training_and_evaluation_are_the_multiplied_weight(layer, shape):
    torch.manual_seed(0)
    found = Fixed(layer(), 3)
    x = torch.randn(6, *shape)
    use_draws(found, [Draw(torch.Generator())])
    trained = found.train()(x)  # row n has the pair n mod 3
    found.eval()
    for number in range(3):
        use_draws(found, [Draw(torch.Generator(), number)])
        whole = found(x)
        torch.testing.assert_close(whole[number::3], trained[number::3], rtol=1e-4, atol=1e-5)
    if shape == (4,):
        weight = found.weight * torch.outer(found.out[2], found.into[2])
        torch.testing.assert_close(whole, x @ weight.T + found.bias[2])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rank1(layer, *, components=3, positive=0.75, prior_mean="sign", prior_stddev=0.05, clip=None, seed=0):
    return Rank1Layer(
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


LAYERS = {
    "linear": (nn.Linear(4, 6), (4,)),
    "tokens": (nn.Linear(4, 6), (7, 4)),
    "strided": (nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (4, 5, 5)),
}


def made(layer, members=3, std=0.5):
    found = BatchEnsembleLayer(layer, members, std, torch.Generator().manual_seed(0))
    for k, bias in enumerate(found.bias):
        bias.data += k
    return found


def multiplied_out(layer, ensemble, k):
    """The tensors of member k: output o of a group sees the inputs of that group, W[o, i] s[o] r[first + i]."""
    groups = getattr(layer, "groups", 1)
    outputs, inputs = layer.weight.shape[:2]
    factor = torch.stack([
        ensemble.output_factors[k, o] * ensemble.input_factors[k][first : first + inputs]
        for o in range(outputs) for first in [o // (outputs // groups) * inputs]
    ])  # fmt: skip
    weight = layer.weight * factor.view(outputs, inputs, *[1] * (layer.weight.ndim - 2))
    return {"weight": weight} | ({"bias": ensemble.bias[k]} if len(ensemble.bias) else {})


@pytest.mark.parametrize("kind", LAYERS)
def test_a_member_is_the_layer_with_its_own_weight_to_the_last_bit(kind):
    layer, shape = LAYERS[kind]
    ensemble = made(layer).eval()
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))
    use_draws(ensemble, [Draw(torch.Generator(), number) for number in range(3)])
    for k, found in enumerate(ensemble(torch.cat([x] * 3)).chunk(3)):
        assert torch.equal(found, functional_call(layer, multiplied_out(layer, ensemble, k), x))


@pytest.mark.parametrize("kind", LAYERS)
def test_each_member_learns_from_its_share_of_a_batch(kind):
    """Six rows are three shares of two. Outputs and gradients agree to rounding: training does not multiply out."""
    layer, shape = LAYERS[kind]
    ensemble = made(layer)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))
    use_generator(ensemble, torch.Generator())
    found = ensemble(x)
    expected = torch.cat([
        functional_call(layer, multiplied_out(layer, ensemble, k), rows) for k, rows in enumerate(x.chunk(3))
    ])  # fmt: skip
    assert torch.allclose(found, expected, atol=1e-5)
    parameters = list(ensemble.parameters())
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "number", "expected"),
    [
        (4, 0, [0, 0, 1, 1]),
        (12, 0, [0] * 6 + [1] * 6),  # four images of three windows
        (12, 3, [1] * 6 + [0] * 6),
        (3, 0, [0, 0, 1]),
        (1, 0, [0]),
        (1, 1, [1]),
    ],
)
def test_each_member_has_its_share_of_the_rows(rows, number, expected):
    ensemble = made(nn.Linear(4, 6), members=2)
    assert ensemble.pair_of(rows, Draw(torch.Generator(), number)).tolist() == expected


def test_factors_start_around_one_are_never_decayed_and_learn_at_the_rate_of_the_weight():
    layer = nn.Linear(3000, 2)
    layer.weight.lr_factor = 0.1
    ensemble = made(layer, members=4, std=0.2)
    drawn = ensemble.input_factors.detach()
    # 12,000 draws: the standard errors are 0.2 / sqrt(12000) = 0.0018 and 0.0013; four of each.
    assert float(drawn.mean()) == pytest.approx(1, abs=0.0074)
    assert float(drawn.std()) == pytest.approx(0.2, abs=0.0052)
    assert {p.lr_factor for p in ensemble.parameters()} == {0.1}
    fixed = {name for name, p in ensemble.named_parameters() if getattr(p, "no_decay", False)}
    assert fixed == {"input_factors", "output_factors"}
    assert bool((made(layer, std=0.0).input_factors == 1).all())


LOW_RANK_LAYERS = {
    "linear": (nn.Linear(4, 6), (4,)),
    "convolution": (nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (4, 5, 5)),
}


@pytest.fixture(params=LOW_RANK_LAYERS)
def case(request):
    layer, shape = LOW_RANK_LAYERS[request.param]
    return copy.deepcopy(layer), torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))


def adapted(layer, members=3, rank=100, alpha=100.0):
    return LowRank(copy.deepcopy(layer), members, rank, alpha, torch.Generator().manual_seed(0))


def use_member(layer, number):
    use_draws(layer, [Draw(torch.Generator(), number)])


def test_every_member_starts_as_the_layer_to_the_last_bit(case):
    layer, x = case
    made = adapted(layer)
    use_draws(made, [Draw(torch.Generator(), k) for k in range(3)])
    assert all(torch.equal(out, layer(x)) for out in made(torch.cat([x] * 3)).chunk(3))


def test_at_full_rank_a_member_can_be_any_dense_update(case):
    layer, x = case
    made, dense = adapted(layer), copy.deepcopy(layer)
    update = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(2))
    u, s, v = torch.linalg.svd(update.flatten(1), full_matrices=False)
    made.up.data[1], made.down.data[1] = u * s, v
    dense.weight.data += update
    use_member(made, 1)
    assert torch.allclose(made(x), dense(x), atol=1e-5)
    use_member(made, 0)
    assert torch.equal(made(x), layer(x))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_first_step_at_full_rank_is_the_dense_step(scale):
    """With AᵀA = I a step of size t along B moves the weight by scale² times the dense step of size t."""
    layer, x = nn.Linear(4, 6), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    made, dense = adapted(layer, members=1, alpha=100 * scale), copy.deepcopy(layer)
    made.down.data[0] = torch.linalg.qr(made.down[0].detach())[0]
    use_member(made, 0)
    for network in (made, dense):
        network(x).square().sum().backward()
    moved = made.scale * (made.up - 0.1 * made.up.grad)[0] @ made.down[0]
    assert torch.allclose(moved, -0.1 * scale**2 * dense.weight.grad, atol=1e-5)
    assert made.weight.grad is None
    assert made.bias.grad is None


def test_a_rank_that_a_layer_cannot_have_is_cut_and_the_scale_stays():
    made = adapted(nn.Linear(4, 6), members=2, rank=8, alpha=4.0)
    assert (made.down.shape, made.up.shape) == ((2, 4, 4), (2, 6, 4))
    assert made.scale == 0.5
    depthwise = adapted(nn.Conv2d(16, 16, 3, groups=16), rank=8)
    assert depthwise.down.shape == (3, 8, 9)
    wide = adapted(nn.Linear(400, 50), rank=50).down.detach()
    # 60,000 draws of std 1 / 20: the standard error of their std is 0.05 / sqrt(120000) = 0.00014; four of it.
    assert float(wide.std()) == pytest.approx(0.05, abs=0.0006)


def test_adapters_learn_at_the_rate_of_the_weight_and_the_weight_stays():
    layer = nn.Linear(4, 6)
    layer.weight.lr_factor = layer.bias.lr_factor = 0.1
    made = LowRank(layer, 2, 2, 2.0, torch.Generator())
    assert {p.lr_factor for p in made.adapters()} == {0.1}
    assert {name for name, p in made.named_parameters() if p.requires_grad} == {"down", "up"}


def test_a_sample_passes_through_the_layer_of_its_number():
    layers = [nn.Linear(3, 2) for _ in range(2)]
    members = Members(layers)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    use_draws(members, [Draw(torch.Generator(), number) for number in (0, 1, 2)])
    expected = [layers[0](x), layers[1](x), layers[0](x)]
    assert torch.equal(members(torch.cat([x] * 3)), torch.cat(expected))
    assert torch.equal(members.each(x), torch.stack(expected[:2]))
    assert torch.equal(members.each(x, 1), expected[0][None])
