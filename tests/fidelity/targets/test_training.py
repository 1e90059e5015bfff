import pytest
import torch

from retinabench.fidelity.targets.registry import TARGETS
from retinabench.fidelity.targets.training import build_network


@pytest.mark.parametrize("name", TARGETS)
def test_each_network_has_the_stated_weights_and_depends_on_its_seed(name):
    first, same, other = (build_network(TARGETS[name], seed) for seed in (0, 0, 1))
    assert sum(p.numel() for p in first.parameters()) == TARGETS[name].parameters
    pairs = list(zip(first.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert any(not torch.equal(a, c) for a, _, c in pairs)
