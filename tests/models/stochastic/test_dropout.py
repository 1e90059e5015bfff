"""Dropout that stays on: its places, its share and its noise."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from retinabench.models.build import initialise
from retinabench.models.networks.efficientnet_lite import efficientnet_lite0
from retinabench.models.networks.resnet import resnet18, resnet34, resnet50
from retinabench.models.pretrained.stages import fine_tune
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic import dropout
from retinabench.models.stochastic.drawing import use_generator
from retinabench.models.stochastic.dropout import Dropout, add_dropout, dropout_sites


@pytest.mark.parametrize(("build", "places"), [(resnet50, 37), (resnet18, 12), (resnet34, 20)])
def test_dropout_goes_behind_every_inner_activation_and_each_projection(build, places):
    # ResNet-50: 1 stem + 2 in each of 16 blocks + 4 projections. ResNet-18/34: 1 + one per block + 3 projections.
    model = build(width=4)
    before = set(model.state_dict())
    add_dropout(model, 0.1)
    assert sum(isinstance(m, Dropout) for m in model.modules()) == places
    assert set(model.state_dict()) == before


def test_dropout_finds_the_activations_of_a_network_that_names_no_sites():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    assert dropout_sites(net) == ("1", "3")


def test_dropout_finds_the_activations_of_other_packages_and_layers_with_names():
    class GELU(nn.Module):  # as in timm
        def forward(self, x):
            return nn.functional.gelu(x)

    class Own(nn.ReLU):
        pass

    net = nn.Sequential(
        OrderedDict(fc1=nn.Linear(2, 3), act=GELU(), fc2=nn.Linear(3, 3), gate=nn.Sigmoid(), last=Own())
    )
    assert dropout_sites(net) == ("act", "last")
    add_dropout(net, 0.9)
    use_generator(net, torch.Generator().manual_seed(0))
    passes = [net(torch.ones(5, 2)) for _ in range(2)]
    assert not torch.equal(*passes)


def test_frozen_stages_stay_without_noise():
    network = efficientnet_lite0()
    assert (
        len(dropout_sites(network)) == 33
    )  # of the stem, of the first block one, of 15 blocks two each, of the head
    settings = ModelConfig(name="efficientnet_lite0", weights="imagenet", trained=2)
    fine_tune(network, settings)
    assert dropout_sites(network) == ("blocks.6.0.act1", "blocks.6.0.act2", "act2")
    named = resnet18(width=4)
    fine_tune(named, ModelConfig(name="resnet18", width=4, weights="imagenet", trained=1))
    assert dropout_sites(named)
    assert all(site.startswith("layer4") for site in dropout_sites(named))


def test_dropout_keeps_the_mean_and_the_stated_share():
    layer = Dropout(0.25)
    use_generator(layer, torch.Generator().manual_seed(0))
    out = layer(torch.ones(200_000))
    # Standard error of the share: sqrt(.25 * .75 / 2e5) = 0.00097; four of them.
    assert abs((out == 0).float().mean() - 0.25) < 0.004
    assert torch.allclose(out[out > 0], torch.tensor(1 / 0.75))
    assert abs(out.mean() - 1) < 0.006


def test_dropout_is_on_in_evaluation_and_reproducible():
    model = add_dropout(resnet18(width=4, stem="small"), 0.5).eval()
    initialise(model, torch.Generator().manual_seed(3))
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    outs = []
    for seed in (0, 1, 0):
        use_generator(model, torch.Generator().manual_seed(seed))
        outs.append(model(x).detach())
    assert not torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


def test_dropout_rounds_its_rate_and_never_drops_everything():
    assert Dropout(0.1).rate == pytest.approx(0.1, abs=2**-17)
    nearly_all = Dropout(1 - 1e-9)
    use_generator(nearly_all, torch.Generator().manual_seed(0))
    out = nearly_all(torch.ones(7, 5, 3, 3))
    assert nearly_all.rate < 1
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_s_mask_is_the_same_in_training_and_however_it_is_cut(dtype, monkeypatch):
    x = torch.ones(3, 5, 7, 9, dtype=dtype)
    outs = []
    for piece, gradient in ((2**17, False), (2**17, True), (8, False)):
        monkeypatch.setattr(dropout, "PIECE", piece)
        layer = Dropout(0.3)
        use_generator(layer, torch.Generator().manual_seed(0))
        with torch.set_grad_enabled(gradient):
            outs.append(layer(x))
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])
    assert torch.equal(x, torch.ones_like(x))
