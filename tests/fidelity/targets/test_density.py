"""Each network evaluated for several chains at once, and the closed form of a small one, is the module itself."""

import math

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import softplus

from retinabench.fidelity.targets import closed_forms
from retinabench.fidelity.targets import density as batched_networks
from retinabench.fidelity.targets.closed_forms import MLPGaussian, plain
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density, build_network, likelihood_of
from retinabench.fidelity.targets.target import TARGETS
from retinabench.models.build import build_published
from support.small_targets import small_data


def by_loop(density, weights):
    """Values, gradients and predictions, one chain at a time."""
    inputs, truth = density.train
    shapes = {name: p.shape for name, p in density.network.named_parameters()}
    values, gradients, predictions = [], [], []
    likelihood = likelihood_of(density.target)
    for w in weights:
        w = w.clone().requires_grad_(True)
        pieces = torch.split(w, [shape.numel() for shape in shapes.values()])
        named = {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        value = -likelihood.negative_log_likelihood(functional_call(density.network, named, (inputs,)), truth).sum()
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, w)[0])
        with torch.no_grad():
            predictions.append(likelihood.predictive(functional_call(density.network, named, (density.test,))))
    return torch.stack(values), torch.stack(gradients), torch.stack(predictions)


TASKS = (
    "fundus", "fundus-100", "energy-gap", "logistic", "drawn-head", "drawn-head-mlp", "drawn-head-binary", "drawn-head-1013",
    "idrid-head-552", "idrid-head-4905",
)  # fmt: skip


# 40 images are two passes of 32, 3 chains two groups: every seam is crossed.
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fast", [True, False])
def test_values_gradients_and_predictions_are_those_of_a_plain_loop(monkeypatch, task, fast):
    batched = batched_networks.BATCHED[TARGETS[task].network]
    monkeypatch.setitem(batched_networks.BATCHED, TARGETS[task].network, batched._replace(chains=2, points=32))
    if not fast:
        monkeypatch.delitem(batched_networks.BATCHED, TARGETS[task].network)
        monkeypatch.setattr(batched_networks, "CLOSED_FORM", {})
    points = {"fundus": 40, "fundus-100": 20, "energy-gap": 40}.get(task)
    data = small_data(task, points) if points else load(TARGETS[task])
    density = Density.of(TARGETS[task], data, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    weights = 0.2 * torch.randn(3, density.target.parameters, generator=generator, dtype=torch.float64)
    values, gradients = density(weights)
    assert torch.allclose(density.gradient(weights), gradients, rtol=1e-12, atol=1e-12)
    true_values, true_gradients, true_predictions = by_loop(density, weights)
    # Sums of a few hundred terms of order 1 to 100 in another order: 1e-12 relative to the largest.
    assert torch.allclose(values, true_values, rtol=1e-12, atol=0)
    assert torch.allclose(gradients, true_gradients, rtol=1e-10, atol=1e-11 * float(true_gradients.abs().max()))
    assert torch.allclose(density.predict(weights), true_predictions, atol=1e-7)  # float32


def test_the_numbers_do_not_depend_on_the_number_of_threads():
    weights = 0.2 * torch.randn(5, TARGETS["fundus"].parameters, generator=torch.Generator().manual_seed(2))
    data = small_data("fundus", 20)
    found = [Density.of(TARGETS["fundus"], data, threads=threads)(weights) for threads in (1, 2)]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", TARGETS)
def test_each_network_has_the_stated_weights_and_depends_on_its_seed(name):
    first, same, other = (build_network(TARGETS[name], seed) for seed in (0, 0, 1))
    assert sum(p.numel() for p in first.parameters()) == TARGETS[name].parameters
    pairs = list(zip(first.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert any(not torch.equal(a, c) for a, _, c in pairs)


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
