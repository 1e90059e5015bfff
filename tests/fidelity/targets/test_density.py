"""Each network evaluated for several chains at once is the module itself."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from retinabench.fidelity.targets import density as batched_networks
from retinabench.fidelity.targets.data import load, standardised
from retinabench.fidelity.targets.density import Density, build_network, likelihood_of
from retinabench.fidelity.targets.target import TARGETS
from support.small_targets import small_data


def plain(density, weights):
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


# 260 images are two passes, 3 chains two groups: every seam is crossed.
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fast", [True, False])
def test_values_gradients_and_predictions_are_those_of_a_plain_loop(monkeypatch, task, fast):
    if not fast:
        monkeypatch.delitem(batched_networks.BATCHED, TARGETS[task].network)
        monkeypatch.setattr(batched_networks, "CLOSED_FORM", {})
    points = {"fundus": 260, "fundus-100": 20, "energy-gap": 40}.get(task)
    data = small_data(task, points) if points else load(TARGETS[task])
    density = Density.of(TARGETS[task], data, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    weights = 0.2 * torch.randn(3, density.target.parameters, generator=generator, dtype=torch.float64)
    values, gradients = density(weights)
    assert torch.allclose(density.gradient(weights), gradients, rtol=1e-12, atol=1e-12)
    true_values, true_gradients, true_predictions = plain(density, weights)
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


def test_the_training_points_of_the_banana_lie_on_its_ridge():
    train, test = standardised(load(TARGETS["banana"]))
    assert set(train[:, 1]) == {0.0}
    assert set(np.abs(train[:, 0])) == {1.0}  # whole numbers stay what they are
    assert test.max() == 4


def test_far_points_of_the_logistic_regression_lie_beyond_the_training_points():
    data = load(TARGETS["logistic"])
    far = data.test.inputs[data.test.groups == "far"]
    assert np.abs(far).max() == 4 * np.abs(data.test.inputs[data.test.groups == "near"]).max()
    assert np.abs(data.train.inputs).max() <= 2
