"""The Gaussian log-likelihood of a small network: plain and compiled, against automatic differentiation and each other."""

import math

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import softplus

from retinabench.fidelity.targets import closed_forms
from retinabench.fidelity.targets.closed_forms import MLPGaussian, plain
from retinabench.models.build import build_published

POINTS, FLOOR = 37, 0.02


def drawn(chains, dtype=torch.float64, size=0.3):
    generator = torch.Generator().manual_seed(chains)
    shapes = ((chains, 552), (POINTS, 8), (POINTS,))
    weights, inputs, truth = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes)
    return size * weights, inputs, truth


def by_autograd(weights, inputs, truth):
    network = build_published("mlp-8-50-2", 0, 2).double()
    weights = weights.clone().requires_grad_(True)
    sizes = [p.numel() for p in network.parameters()]
    values = []
    for one in weights:
        pieces = zip(network.named_parameters(), torch.split(one, sizes), strict=True)
        named = {name: piece.view_as(p) for (name, p), piece in pieces}
        mean, raw = functional_call(network, named, (inputs,)).unbind(dim=1)
        normal = torch.distributions.Normal(mean, softplus(raw) + FLOOR)
        values.append(normal.log_prob(truth).sum())
    (gradients,) = torch.autograd.grad(sum(values), weights)
    return torch.stack(values).detach(), gradients


def assert_close(found, true, tolerance):
    values, gradients = found
    assert torch.allclose(values, true[0], rtol=tolerance, atol=0)
    assert float((gradients - true[1]).abs().max()) < tolerance * float(true[1].abs().max())


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("size", [0.3, 10.0])  # of raw outputs far from 0 as well
def test_plain_and_compiled_are_the_network_and_its_derivative(chains, size):
    weights, inputs, truth = drawn(chains, size=size)
    true = by_autograd(weights, inputs, truth)
    assert_close(plain(weights, inputs, truth, FLOOR), true, 1e-12)
    compiled = MLPGaussian(inputs, truth, FLOOR)
    assert compiled.compiled
    assert_close(compiled(weights), true, 1e-12)
    assert torch.equal(compiled.gradient(weights), compiled(weights)[1])


def test_other_numbers_of_features_and_hidden_units():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 7 * (3 + 3) + 2, generator=generator, dtype=torch.float64)
    inputs, truth = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((11, 3), (11,)))
    assert_close(MLPGaussian(inputs, truth)(weights), plain(weights, inputs, truth, 0.0), 1e-12)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("compiled", [False, True])
def test_weights_that_are_not_finite_give_a_value_that_is_not(value, compiled):
    # The sampler rejects what is not finite; a finite number from NaN would be accepted.
    weights, inputs, truth = drawn(2)
    density = MLPGaussian(inputs, truth, FLOOR)
    density.compiled = compiled
    weights[0, 551] = value  # the bias of the std: every output is concerned
    values, _ = density(weights)
    assert not math.isfinite(values[0])
    assert math.isfinite(values[1])


def test_without_numba_the_plain_form_is_used(monkeypatch):
    monkeypatch.setattr(closed_forms, "find_spec", lambda name: None)
    weights, inputs, truth = drawn(2)
    density = MLPGaussian(inputs, truth, FLOOR)
    assert not density.compiled
    for one, other in zip(density(weights), plain(weights, inputs, truth, FLOOR), strict=True):
        assert torch.equal(one, other)
