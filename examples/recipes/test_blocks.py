"""The linear classifier of block colours."""

from __future__ import annotations

import torch

from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig


def test_it_is_linear_in_the_mean_colours_of_blocks():
    model = build_model(ModelConfig(name="blocks"), seed=0)
    assert sum(p.numel() for p in model.parameters()) == 49
    images = torch.rand(2, 3, 8, 8)
    means = images.reshape(2, 3, 4, 2, 4, 2).mean(dim=(3, 5)).flatten(1)
    assert torch.allclose(model(images), means @ model.fc.weight.T + model.fc.bias, atol=1e-6)
