"""timm's backbones through the adapter."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.registry import METHODS
from retinabench.methods.training.likelihood import Bernoulli
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


@pytest.mark.filterwarnings("ignore:these layers are left as they are")  # position and class tokens
@pytest.mark.parametrize("method", ["dropout", "mfvi", "rank1"])
@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "vit_tiny_patch16_224"])
def test_surgery_reaches_into_timm_s_own_networks(name, method):
    pytest.importorskip("timm", reason="timm is not installed")
    network = build_model(ModelConfig(name=f"timm:{name}"), 0)
    run = load_run(None, [f"method={method}", f"model.name=timm:{name}"], data="d")
    posterior = METHODS[method].build(network, run, Bernoulli())
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        probs = posterior.predict(images, 2, torch.Generator().manual_seed(0))
    assert probs.shape == (2, 2, 2)
    assert not torch.equal(probs[0], probs[1])
