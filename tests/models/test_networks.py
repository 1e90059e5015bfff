"""The networks beside the ResNets: sizes as published, sites, weights from the seed alone, timm through its adapter."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.models.build import build_model, build_published
from retinabench.models.lenet import lenet
from retinabench.models.mlp import MLP, mlp
from retinabench.models.registry import MODELS, special_inputs
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.dropout import dropout_sites
from retinabench.models.vgg import vgg


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_published_sizes():
    assert parameters(vgg()) == 2_657_345
    # The other widths of the 2019 benchmark: flag and configuration files.
    assert parameters(vgg(width=31)) == 2_493_951
    assert parameters(vgg(width=64)) == 10_623_105
    assert parameters(lenet(outputs=7)) == 61_751
    assert parameters(MLP(8, 50, 2, nn.ReLU)) == 552


@pytest.mark.parametrize(("width", "count"), [(22, 2_512_159), (42, 9_150_499)])
def test_a_mean_field_posterior_of_the_2019_network_has_a_mean_and_a_scale_per_kernel_weight(width, count):
    """Biases have a mean alone: 2 x kernels + biases."""
    tensors = list(vgg(width=width).parameters())
    kernels = sum(p.numel() for p in tensors if p.ndim > 1)
    assert 2 * kernels + sum(p.numel() for p in tensors if p.ndim == 1) == count


def test_the_2019_network_at_512_px():
    net = vgg(width=2)
    shapes = []
    net.group5.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    assert net(torch.zeros(1, 3, 512, 512)).shape == (1, 1)
    assert shapes == [(1, 16, 16, 16)]
    assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == 13
    assert len(dropout_sites(net)) == 12
    assert "group5.7" not in dropout_sites(net)


def test_lenet_pools_as_lenet_at_28_px_and_fits_any_size():
    net = lenet(outputs=7, activation=nn.SiLU)
    maps = torch.rand(2, 16, 10, 10, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(net.pool2(maps), nn.functional.avg_pool2d(maps, 2), atol=1e-7)
    for size in (16, 28, 64):
        assert net(torch.zeros(2, 3, size, size)).shape == (2, 7)


def test_an_mlp_sees_block_means():
    net = mlp()
    assert net.fc1.in_features == 192
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    blocks = x.reshape(2, 3, 8, 8, 8, 8).mean(dim=(3, 5))
    assert torch.allclose(net.pool(x), blocks, atol=1e-6)
    assert net(x).shape == (2, 1)


@pytest.mark.parametrize("name", [name for name in MODELS if not special_inputs(name)])
def test_every_network_builds_from_its_seed_and_splits_at_the_last_layer(name):
    config = ModelConfig(name=name, width=4)
    nets = [build_model(config, seed).eval() for seed in (3, 3, 4)]
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outs = [net(x) for net in nets]
        assert torch.equal(outs[0], nets[0].fc(nets[0].features(x)))
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


def test_width_and_stem_belong_to_the_network():
    widths = {name: ModelConfig(name=name).width for name in ("resnet50", "vgg", "lenet", "mlp", "timm:x")}
    assert widths == {"resnet50": 64, "vgg": 32, "lenet": 6, "mlp": 50, "timm:x": 64}
    for words, says in [
        (["model.name=vgg", "model.stem=small"], "has one stem"),
        (["model.name=timm:x", "model.width=8"], "has one width"),
        (["model.name=timmx"], "Did you mean 'timm:NAME'"),
        (["model.name=cnn-lstm"], "takes tokens, not images"),
        (["model.name=mlp-8-50-2"], "takes tables of 8 numbers, not images"),
    ]:
        with pytest.raises(InputError, match=says):
            load_run(None, words, data="d")


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
