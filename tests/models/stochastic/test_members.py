"""Layers of their own for each member."""

from __future__ import annotations

import torch
from torch import nn

from retinabench.models.stochastic.drawing import Draw, use_draws
from retinabench.models.stochastic.members import Members


def test_a_sample_passes_through_the_layer_of_its_number():
    layers = [nn.Linear(3, 2) for _ in range(2)]
    members = Members(layers)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    use_draws(members, [Draw(torch.Generator(), number) for number in (0, 1, 2)])
    expected = [layers[0](x), layers[1](x), layers[0](x)]
    assert torch.equal(members(torch.cat([x] * 3)), torch.cat(expected))
    assert torch.equal(members.each(x), torch.stack(expected[:2]))
    assert torch.equal(members.each(x, 1), expected[0][None])
