"""BatchEnsemble layers against layers whose weight is multiplied out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call

from retinabench.models.stochastic.batch_ensemble import BatchEnsemble
from retinabench.models.stochastic.drawing import Draw, use_draws, use_generator

LAYERS = {
    "linear": (nn.Linear(4, 6), (4,)),
    "tokens": (nn.Linear(4, 6), (7, 4)),
    "strided": (nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (4, 5, 5)),
}


def made(layer, members=3, std=0.5):
    found = BatchEnsemble(layer, members, std, torch.Generator().manual_seed(0))
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
def test_a_member_is_the_layer_with_its_own_weight_to_the_last_bit(kind):
    layer, shape = LAYERS[kind]
    ensemble = made(layer).eval()
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))
    use_draws(ensemble, [Draw(torch.Generator(), number) for number in range(3)])
    for k, found in enumerate(ensemble(torch.cat([x] * 3)).chunk(3)):
        assert torch.equal(found, functional_call(layer, multiplied_out(layer, ensemble, k), x))


@pytest.mark.parametrize("kind", LAYERS)
def test_each_member_learns_from_its_share_of_a_batch(kind):
    """Six rows are three shares of two. Outputs and gradients agree to rounding: training does not multiply out."""
    layer, shape = LAYERS[kind]
    ensemble = made(layer)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))
    use_generator(ensemble, torch.Generator())
    found = ensemble(x)
    expected = torch.cat([
        functional_call(layer, multiplied_out(layer, ensemble, k), rows) for k, rows in enumerate(x.chunk(3))
    ])  # fmt: skip
    assert torch.allclose(found, expected, atol=1e-5)
    parameters = list(ensemble.parameters())
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "number", "expected"),
    [
        (4, 0, [0, 0, 1, 1]),
        (12, 0, [0] * 6 + [1] * 6),  # four images of three windows
        (12, 3, [1] * 6 + [0] * 6),
        (3, 0, [0, 0, 1]),
        (1, 0, [0]),
        (1, 1, [1]),
    ],
)
def test_each_member_has_its_share_of_the_rows(rows, number, expected):
    ensemble = made(nn.Linear(4, 6), members=2)
    assert ensemble.pair_of(rows, Draw(torch.Generator(), number)).tolist() == expected


def test_factors_start_around_one_are_never_decayed_and_learn_at_the_rate_of_the_weight():
    layer = nn.Linear(3000, 2)
    layer.weight.lr_factor = 0.1
    ensemble = made(layer, members=4, std=0.2)
    drawn = ensemble.input_factors.detach()
    # 12,000 draws: the standard errors are 0.2 / sqrt(12000) = 0.0018 and 0.0013; four of each.
    assert float(drawn.mean()) == pytest.approx(1, abs=0.0074)
    assert float(drawn.std()) == pytest.approx(0.2, abs=0.0052)
    assert {p.lr_factor for p in ensemble.parameters()} == {0.1}
    fixed = {name for name, p in ensemble.named_parameters() if getattr(p, "no_decay", False)}
    assert fixed == {"input_factors", "output_factors"}
    assert bool((made(layer, std=0.0).input_factors == 1).all())
