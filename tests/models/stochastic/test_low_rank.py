"""Low-rank adapters against dense updates of the weight."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from retinabench.models.stochastic.drawing import Draw, use_draws
from retinabench.models.stochastic.low_rank import LowRank

LAYERS = {
    "linear": (nn.Linear(4, 6), (4,)),
    "convolution": (nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (4, 5, 5)),
}


@pytest.fixture(params=LAYERS)
def case(request):
    layer, shape = LAYERS[request.param]
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
