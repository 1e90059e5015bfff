"""Networks from their settings and seed."""

from types import SimpleNamespace

import pytest
import torch

from retinabench.models.build import build_model, build_published
from retinabench.models.registry import MODELS, published_width, special_inputs
from retinabench.models.settings import ModelConfig


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", [name for name in MODELS if not special_inputs(name)])
def test_every_network_builds_from_its_seed_and_splits_at_the_last_layer(name):
    config = ModelConfig(name=name, **({"width": 4} if published_width(name) else {}))
    nets = [build_model(config, seed).eval() for seed in (3, 3, 4)]
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outs = [net(x) for net in nets]
        last = [module for module in nets[0].modules() if isinstance(module, torch.nn.Linear)][-1]
        assert torch.equal(outs[0], last(nets[0].features(x)))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize(
    ("name", "outputs", "count"),
    [
        ("resnet20-frn-swish", 10, 274_042),
        ("alexnet-swish", 10, 1_488_202),
        ("cnn-lstm", 2, 2_700_098),
        ("lenet-smooth", 7, 61_751),
        ("mlp-8-50-2", 2, 552),
        ("mlp", 1, 9_701),
    ],
)
def test_networks_have_the_number_of_weights_that_their_docstrings_state(name, outputs, count):
    assert parameters(build_published(name, 0, outputs)) == count
    assert f"{count:,} weights" in MODELS[name].__doc__ or name == "lenet-smooth"


def test_glorot_and_he_scales():
    weight = build_model(ModelConfig(name="vgg"), 0).group5[2].weight.detach()
    bound = (6 / (2 * 256 * 9)) ** 0.5
    assert float(weight.abs().max()) == pytest.approx(bound, rel=1e-4)
    # 590,000 draws: relative standard error of the scale 0.06 %.
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.004)
    hidden = build_model(ModelConfig(name="lenet", width=24), 0).fc1.weight.detach()
    assert float(hidden.std()) == pytest.approx((2 / hidden.shape[1]) ** 0.5, rel=0.01)


def test_rates_of_a_trunk_that_is_not_trained_are_noted(tmp_path):
    net = {"name": "resnet18", "width": 4, "stem": "small"}
    torch.save(build_model(ModelConfig(**net), seed=0).state_dict(), tmp_path / "w.pt")
    said = []
    progress = SimpleNamespace(say=said.append)
    config = ModelConfig(**net, weights=str(tmp_path / "w.pt"), trained="head", layer_decay=0.5)
    build_model(config, seed=0, progress=progress)
    assert said == ["note: model.trunk_lr and model.layer_decay have no effect: the trunk is not trained"]
