"""Where the noise of layers comes from: one generator for each posterior sample of a pass."""

import pytest
import torch
from torch import nn

from retinabench.models.stochastic.drawing import (
    Draw,
    Drawing,
    channels_last,
    random_signs,
    standard_normal,
    use_draws,
    use_generator,
)


class Noise(Drawing):
    """Adds a normal of each sample's own to its rows."""

    def forward(self, x):
        return self.each_draw(x, lambda rows, draw: rows + torch.randn(rows.shape, generator=draw.generator))


def generators():
    return [torch.Generator().manual_seed(k) for k in (1, 2, 3)]


def test_samples_that_share_a_pass_have_the_noise_of_their_own():
    layer = nn.Sequential(Noise())
    use_draws(layer, [Draw(one) for one in generators()])
    together = layer(torch.zeros(6, 4))
    alone = []
    for one in generators():
        use_generator(layer, one)
        alone.append(layer(torch.zeros(2, 4)))
    assert torch.equal(together, torch.cat(alone))


def test_a_layer_without_a_generator_says_what_to_call():
    with pytest.raises(RuntimeError, match="use_generator"):
        Noise()(torch.zeros(1, 1))


def test_a_weight_is_drawn_once_for_a_sample_with_a_cache_but_not_under_gradients():
    layer, calls = Noise(), []
    draw = Draw(torch.Generator(), cache={})

    def weight():
        calls.append(1)
        return torch.ones(1)

    for grad in (True, False, False):
        with torch.set_grad_enabled(grad):
            layer.cached(draw, weight)
    assert len(calls) == 2
    layer.cached(Draw(torch.Generator()), weight)
    assert len(calls) == 3


def test_noise_of_images_lies_channels_last():
    shape = torch.Size((2, 3, 4, 5))
    found = standard_normal(shape, torch.Generator().manual_seed(0))
    assert found.shape == shape
    assert found.is_contiguous(memory_format=torch.channels_last)
    plain = torch.randn((2, 4, 5, 3), generator=torch.Generator().manual_seed(0))
    assert torch.equal(found, plain.permute(0, 3, 1, 2))
    flat = channels_last(torch.rand, torch.Size((6,)), torch.Generator().manual_seed(0))
    assert torch.equal(flat, torch.rand(6, generator=torch.Generator().manual_seed(0)))


def test_signs_are_fair():
    """10,000 draws: four standard errors."""
    signs = random_signs(torch.Size((10_000,)), torch.Generator().manual_seed(0))
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 4 / 100
