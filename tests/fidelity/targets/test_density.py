"""The fast densities against a plain loop over chains, module and automatic differentiation, in float64."""

import pytest
import torch
from torch.func import functional_call

from retinabench.fidelity.targets import batched_networks
from retinabench.fidelity.targets.data import TargetData, load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.registry import TARGETS
from retinabench.fidelity.targets.training import likelihood_of
from support.small_targets import small_data


def plain(density, weights):
    """Values, gradients and predictions, one chain at a time."""
    inputs, truth = density.train
    shapes = {name: p.shape for name, p in density.network.named_parameters()}
    values, gradients, predictions = [], [], []
    likelihood = likelihood_of(density.target)
    if True:
        for w in weights:
            w = w.clone().requires_grad_(True)
            pieces = torch.split(w, [shape.numel() for shape in shapes.values()])
            named = {
                name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
            }
            value = -likelihood.negative_log_likelihood(
                functional_call(density.network, named, (inputs,)), truth
            ).sum()
            values.append(value.detach())
            gradients.append(torch.autograd.grad(value, w)[0])
            with torch.no_grad():
                predictions.append(
                    likelihood.predictive(functional_call(density.network, named, (density.test,)))
                )
    return torch.stack(values), torch.stack(gradients), torch.stack(predictions)


# 260 images are two passes, 3 chains two groups: every seam is crossed.
@pytest.mark.parametrize(("task", "points"), [("fundus", 260), ("energy-gap", 40)])
@pytest.mark.parametrize("fast", [True, False])
def test_values_gradients_and_predictions_are_those_of_a_plain_loop(monkeypatch, task, points, fast):
    if not fast:
        monkeypatch.setattr(batched_networks, "BATCHED", batched_networks.BATCHED)
        monkeypatch.delitem(batched_networks.BATCHED, TARGETS[task].network)
        monkeypatch.setattr("retinabench.fidelity.targets.density.CLOSED_FORM", {})
    density = Density.of(TARGETS[task], small_data(task, points), dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    weights = 0.2 * torch.randn(3, density.target.parameters, generator=generator, dtype=torch.float64)
    values, gradients = density(weights)
    assert torch.equal(density.gradient(weights), gradients)
    true_values, true_gradients, true_predictions = plain(density, weights)
    # Sums of a few hundred terms of order 1 to 100 in another order: 1e-12 relative to the largest.
    assert torch.allclose(values, true_values, rtol=1e-12, atol=0)
    assert torch.allclose(
        gradients, true_gradients, rtol=1e-10, atol=1e-11 * float(true_gradients.abs().max())
    )
    assert torch.allclose(density.predict(weights), true_predictions, atol=1e-7)  # float32


def test_the_numbers_do_not_depend_on_the_number_of_threads():
    weights = 0.2 * torch.randn(5, TARGETS["fundus"].parameters, generator=torch.Generator().manual_seed(2))
    data = small_data("fundus", 20)
    found = [Density.of(TARGETS["fundus"], data, threads=threads)(weights) for threads in (1, 2)]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_kept_arrays_serve_any_number_of_chains_and_results_stay():
    density = Density.of(TARGETS["energy-gap"], small_data("energy-gap", 40), dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    weights = 0.2 * torch.randn(5, density.target.parameters, generator=generator, dtype=torch.float64)
    true_values, true_gradients, _ = plain(density, weights)
    parts = [slice(0, 3), slice(3, 5), slice(0, 5), slice(1, 4)]  # the last has other weights than the first
    # Every other row of twice as many: rows apart in memory are served too.
    apart = torch.stack([weights, -weights], dim=1).flatten(0, 1)[::2]
    found = [density(source[part]) for source in (weights, apart) for part in parts]
    for (values, gradients), part in zip(found, 2 * parts, strict=True):
        assert torch.allclose(values, true_values[part], rtol=1e-12, atol=0)
        scale = float(true_gradients.abs().max())
        assert torch.allclose(gradients, true_gradients[part], rtol=1e-10, atol=1e-11 * scale)


def test_the_gradient_by_hand_holds_in_float32():
    data = small_data("energy-gap", 512)
    weights = 0.1 * torch.randn(8, 552, generator=torch.Generator().manual_seed(4))
    values, gradients = Density.of(TARGETS["energy-gap"], data)(weights)
    exact = Density.of(TARGETS["energy-gap"], data, dtype=torch.float64)
    true_values, true_gradients, _ = plain(exact, weights.double())
    # Sums of 512 terms, each rounded by 6e-8: errors of a few roundings, relative to the largest.
    assert torch.allclose(values.double(), true_values, rtol=1e-6, atol=0)
    assert float((gradients - true_gradients).abs().max() / true_gradients.abs().max()) < 2e-6


def test_density_sums_over_parts_of_the_points(monkeypatch):
    task = TARGETS["fundus"]
    data = load(task)
    few = TargetData(
        type(data.train)(data.train.inputs[:50], data.train.targets[:50], data.train.groups[:50]), data.test
    )
    weights = 0.1 * torch.randn(
        1, task.parameters, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    whole = Density.of(task, few, dtype=torch.float64)(weights)
    how = batched_networks.BATCHED[task.network]
    monkeypatch.setitem(batched_networks.BATCHED, task.network, how._replace(points=16))
    parts = Density.of(task, few, dtype=torch.float64)(weights)
    torch.testing.assert_close(parts[0], whole[0])
    torch.testing.assert_close(parts[1], whole[1])
