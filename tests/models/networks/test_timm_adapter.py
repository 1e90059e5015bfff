"""timm's backbones through the adapter."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig


class FakeBackbone(nn.Module):
    """What timm promises of a model without classifier: pooled features, and how many."""

    def __init__(self, num_features):
        super().__init__()
        self.num_features = num_features
        self.conv = nn.Conv2d(3, num_features, 3)

    def forward(self, x):
        return self.conv(x).mean(dim=(2, 3))


def test_timm_s_backbones_get_one_linear_layer_and_weights_from_the_seed(monkeypatch):
    asked = []

    def create_model(name, *, pretrained, num_classes):
        asked.append((name, pretrained, num_classes))
        if name != "tiny":
            raise RuntimeError(f"Unknown model ({name})")
        return FakeBackbone(5)

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    before = torch.random.get_rng_state()
    nets = [build_model(ModelConfig(name="timm:tiny"), seed, outputs=3) for seed in (7, 7, 8)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert asked == [("tiny", False, 0)] * 3
    states = [net.state_dict() for net in nets]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert not torch.equal(states[0]["backbone.conv.weight"], states[2]["backbone.conv.weight"])
    assert nets[0](torch.zeros(2, 3, 8, 8)).shape == (2, 3)
    with pytest.raises(InputError, match="no model 'huge'"):
        build_model(ModelConfig(name="timm:huge"), 0)


def test_timm_is_asked_for_by_name_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="pip install timm"):
        build_model(ModelConfig(name="timm:resnet50"), 0)
