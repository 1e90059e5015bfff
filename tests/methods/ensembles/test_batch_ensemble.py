"""BatchEnsemble against K networks whose weights are multiplied out."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods.ensembles import batch_ensemble
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.batch_ensemble import BatchEnsemble


class Backbone(nn.Module):
    """What timm promises of a model without classifier, with a convolution per group and a linear layer on tokens."""

    def __init__(self):
        super().__init__()
        self.num_features = 6
        self.patches, self.mix = (
            nn.Conv2d(3, 6, 4, stride=4),
            nn.Conv2d(6, 6, 3, padding=1, groups=3, bias=False),
        )
        self.norm, self.mlp = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        tokens = self.mix(self.patches(x)).flatten(2).transpose(1, 2)
        return (tokens + self.mlp(self.norm(tokens))).mean(dim=1)


@pytest.fixture(params=["resnet18", "efficientnet_lite0", "timm:tiny"])
def network(request, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=lambda *_, **__: Backbone()))
    size = {"width": 4, "stem": "small"} if request.param == "resnet18" else {}
    return build_model(ModelConfig(name=request.param, **size), seed=3)


def explicit(plain, ensemble, k):
    """Return the plain network with member k's weights and biases."""
    network = copy.deepcopy(plain)
    for name, module in ensemble.named_modules():
        if isinstance(module, BatchEnsemble):
            layer = network.get_submodule(name)
            outer = torch.outer(module.output_factors[k], module.input_factors[k])
            if getattr(layer, "groups", 1) > 1:
                outputs, inputs = layer.weight.shape[:2]
                first = torch.arange(outputs) // (outputs // layer.groups) * inputs
                outer = torch.stack(
                    [row[start : start + inputs] for row, start in zip(outer, first, strict=True)]
                )
            layer.weight.data = layer.weight.data * outer.detach()[(...,) + (None,) * (layer.weight.ndim - 2)]
            if layer.bias is not None:
                layer.bias.data = module.bias[k].detach()
    return network.eval()


def test_members_are_networks_with_multiplied_weights_to_the_last_bit(network):
    plain = copy.deepcopy(network)
    run = load_run(None, ["method.name=batch_ensemble", "method.members=3"], data="d", seed=1)
    posterior = batch_ensemble.build(network, run, Bernoulli())
    assert not [m for m in posterior.model.modules() if type(m) in (nn.Conv2d, nn.Linear)]
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)
    found = posterior.predict(images, 3, torch.Generator())
    with torch.no_grad():
        expected = [explicit(plain, posterior.model, k)(images).sigmoid()[:, 0] for k in range(3)]
    assert torch.equal(found[..., 1], torch.stack(expected))
    assert not torch.equal(found[0], found[1])
    assert torch.equal(posterior.predict(images, 2, torch.Generator()), found[:2])
    assert torch.equal(posterior.predict(images, 9, torch.Generator()), found)


def test_frozen_stages_stay_as_they_are():
    network = build_model(ModelConfig(name="resnet18", width=4, stem="small"), seed=3)
    network.layer1.requires_grad_(False)
    run = load_run(None, ["method.name=batch_ensemble"], data="d")
    model = batch_ensemble.build(network, run, Bernoulli()).model
    kinds = {name.partition(".")[0] for name, m in model.named_modules() if isinstance(m, BatchEnsemble)}
    assert "layer1" not in kinds
    assert {"conv1", "layer2", "fc"} <= kinds


def test_every_member_is_trained_where_parts_of_a_batch_hold_fewer_images_than_members():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(16, 3)).astype(np.float32)
    batches = array_batches(inputs, (inputs[:, 0] > 0).astype(np.float32), 4, 0, torch.device("cpu"))
    words = ["optimizer.accumulate=2", "optimizer.epochs=1", "optimizer.select=last", "method.members=4"]
    run = load_run(None, ["method.name=batch_ensemble", *words], data="d")
    start = batch_ensemble.build(nn.Linear(3, 1), run, Bernoulli()).model.input_factors.detach()
    trained = batch_ensemble.fit(nn.Linear(3, 1), batches, run, Checkpoint(), Bernoulli()).model
    assert ((trained.input_factors != start).any(dim=1)).all()
