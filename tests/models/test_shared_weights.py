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
from retinabench.models.stochastic.shared_weights import BatchEnsembleLayer, LowRank, Members, Rank1Layer
from support.helpers import generator


def rank1(layer, *, components=3, positive=0.75, prior_mean="sign", prior_stddev=0.05, clip=None, seed=0):
    return Rank1Layer(
        layer, components=components, positive=positive, prior_mean=prior_mean, prior_stddev=prior_stddev, clip=clip,
        generator=generator(seed),
    )  # fmt: skip


@torch.no_grad()
def without_noise(layer):
    for rho in (layer.input_rho, layer.output_rho):
        rho.fill_(-40)
    return layer


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


def test_the_divergence_is_the_mean_over_components():
    made = rank1(nn.Linear(5, 4), components=3, prior_mean="one")
    source = generator(3)
    made.input_mean.data = 1 + 0.1 * torch.randn(3, 5, generator=source)
    q = torch.distributions.Normal(made.input_mean, functional.softplus(made.input_rho))
    expected = torch.distributions.kl_divergence(q, torch.distributions.Normal(1, 0.05)).sum(dim=1).mean()
    assert float(made.kl_terms()[0].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


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


LAYERS = {
    "linear": (nn.Linear(4, 6), (4,)),
    "tokens": (nn.Linear(4, 6), (7, 4)),
    "strided": (nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (4, 5, 5)),
}


def made(layer, members=3, std=0.5):
    found = BatchEnsembleLayer(layer, members, std, generator())
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
def test_each_member_learns_from_its_share_of_a_batch(kind):
    """Six rows are three shares of two. Outputs and gradients agree to rounding: training does not multiply out."""
    layer, shape = LAYERS[kind]
    ensemble = made(layer)
    x = torch.randn(6, *shape, generator=generator(1))
    use_generator(ensemble, torch.Generator())
    found = ensemble(x)
    expected = torch.cat([
        functional_call(layer, multiplied_out(layer, ensemble, k), rows) for k, rows in enumerate(x.chunk(3))
    ])  # fmt: skip
    assert torch.allclose(found, expected, atol=1e-5)
    parameters = list(ensemble.parameters())
    gradients = [torch.autograd.grad(each.square().sum(), parameters) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-3)


def adapted(layer, members=3, rank=100, alpha=100.0):
    return LowRank(copy.deepcopy(layer), members, rank, alpha, generator())


@pytest.mark.parametrize("kind", LAYERS)
def test_every_member_starts_as_the_layer_to_the_last_bit(kind):
    layer, shape = LAYERS[kind]
    x = torch.randn(2, *shape, generator=generator(1))
    made = adapted(layer)
    use_draws(made, [Draw(torch.Generator(), k) for k in range(3)])
    assert all(torch.equal(out, layer(x)) for out in made(torch.cat([x] * 3)).chunk(3))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_first_step_at_full_rank_is_the_dense_step(scale):
    """With AᵀA = I a step of size t along B moves the weight by scale² times the dense step of size t."""
    layer, x = nn.Linear(4, 6), torch.randn(5, 4, generator=generator(1))
    made, dense = adapted(layer, members=1, alpha=100 * scale), copy.deepcopy(layer)
    made.down.data[0] = torch.linalg.qr(made.down[0].detach())[0]
    use_draws(made, [Draw(torch.Generator())])
    for network in (made, dense):
        network(x).square().sum().backward()
    moved = made.scale * (made.up - 0.1 * made.up.grad)[0] @ made.down[0]
    assert torch.allclose(moved, -0.1 * scale**2 * dense.weight.grad, atol=1e-5)
    assert made.weight.grad is None
    assert made.bias.grad is None


def test_a_sample_passes_through_the_layer_of_its_number():
    layers = [nn.Linear(3, 2) for _ in range(2)]
    members = Members(layers)
    x = torch.randn(4, 3, generator=generator())
    use_draws(members, [Draw(torch.Generator(), number) for number in (0, 1, 2)])
    expected = [layers[0](x), layers[1](x), layers[0](x)]
    assert torch.equal(members(torch.cat([x] * 3)), torch.cat(expected))
    assert torch.equal(members.each(x), torch.stack(expected[:2]))
    assert torch.equal(members.each(x, 1), expected[0][None])


def test_samples_are_clipped_where_asked():
    made = rank1(nn.Linear(50, 1), components=1, clip=1.01)
    use_generator(made, generator())
    drawn = made._sample(made.input_mean, made.input_rho, torch.zeros(100, dtype=torch.long), Draw(generator(1)))
    assert float(drawn.detach().abs().max()) == pytest.approx(1.01)


def test_the_published_prior_fights_the_signs_and_ours_does_not():
    published, ours = (rank1(nn.Linear(400, 1), components=1, prior_mean=p).kl_terms()[0] for p in ("one", "sign"))
    negative = int((rank1(nn.Linear(400, 1), components=1).input_mean < 0).sum())
    # (-1 - 1)² / (2 * 0.05²) = 800 nats for each -1.
    assert float((published - ours).detach()) == pytest.approx(800 * negative, rel=1e-4)
