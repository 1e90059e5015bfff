"""The closed form against automatic differentiation of the modules, in float64."""

import pytest
import torch
from torch.func import functional_call

from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.registry import TARGETS


@pytest.mark.parametrize("name", ["logistic", "drawn-head", "drawn-head-mlp", "drawn-head-binary"])
def test_values_and_gradients_are_those_of_automatic_differentiation(name):
    target = TARGETS[name]
    density = Density.of(target, load(target), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(3, target.parameters, generator=generator, dtype=torch.float64)
    values, gradients = density(weights)
    assert torch.allclose(density.gradient(weights), gradients, rtol=1e-12, atol=1e-12)
    inputs, truth = density.train
    for k in range(3):
        at = weights[k : k + 1].clone().requires_grad_(True)
        named = {key: value[0] for key, value in density.named(at).items()}
        plain = -torch.nn.functional.cross_entropy(
            functional_call(density.network, named, (inputs,)), truth, reduction="sum"
        )
        (slope,) = torch.autograd.grad(plain, at)
        assert torch.allclose(values[k], plain, rtol=1e-12)
        assert torch.allclose(gradients[k], slope[0], rtol=1e-9, atol=1e-10)
