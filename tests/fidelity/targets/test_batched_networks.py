"""Each network evaluated for several chains at once is the module itself."""

import pytest
import torch
from torch.func import functional_call

from retinabench.fidelity.targets.batched_networks import BATCHED, CLOSED_FORM
from retinabench.models.build import build_published


@pytest.mark.parametrize("name", BATCHED)
def test_several_chains_at_once_are_the_network_at_each(name):
    network = build_published(name, 0, 2).double()
    generator = torch.Generator().manual_seed(1)
    weights = {
        key: 0.3 * torch.randn(3, *p.shape, generator=generator, dtype=torch.float64)
        for key, p in network.named_parameters()
    }
    shape = (3, 28, 28) if name.startswith("lenet") else (next(iter(network.parameters())).shape[1],)
    x = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    together = BATCHED[name].forward(weights, x)
    for k in range(3):
        one = functional_call(network, {key: values[k] for key, values in weights.items()}, (x,))
        assert torch.allclose(together[k], one, rtol=1e-10, atol=1e-12)


def test_networks_with_a_gradient_by_hand_are_batched_too():
    assert {network for network, _ in CLOSED_FORM} <= set(BATCHED)
