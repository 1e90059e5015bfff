from collections import OrderedDict

import pytest
import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.methods.layer_posteriors import Mfvi, Radial, Rank1
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from retinabench.models.foreign import TimmNetwork
from retinabench.models.networks.efficientnet_lite import efficientnet_lite0
from retinabench.models.networks.resnet import resnet18, resnet34, resnet50
from retinabench.models.pretrained import fine_tune, freeze
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic import dropout
from retinabench.models.stochastic.drawing import Draw, Drawing, kl_terms, use_draws, use_generator
from retinabench.models.stochastic.dropout import Dropout, add_dropout, dropout_sites
from retinabench.models.stochastic.variational import Variational


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


def run(method, **options):
    words = [f"method.{key}={value}" for key, value in options.items()]
    return load_run(None, [f"method.name={method}", *words], data="d")


def parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_mfvi_resnet50_has_the_reference_s_terms_and_parameters():
    model = Mfvi.build(resnet50(), run("mfvi"), Bernoulli()).model
    assert len(kl_terms(model)) == 54
    # The reference counts the norms' running means and variances too: 2 * 26,560 values that nothing trains.
    running = sum(b.numel() for name, b in model.named_buffers() if "running" in name)
    assert (parameters(model), running) == (46_967_041, 53_120)
    assert parameters(model) + running == 47_020_161


def test_rank1_resnet50_has_the_reference_s_terms_and_parameters():
    options = run("rank1", components=1)
    model = Rank1.build(resnet50(), options, Bernoulli()).model
    assert len(kl_terms(model)) == 108
    assert parameters(model) + 53_120 == 23_665_481


def test_parameters_keep_their_names_weights_and_layout():
    model = resnet18(width=4).to(memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    posterior = Radial.build(model, run("radial"), Bernoulli())
    after = posterior.model.state_dict()
    assert posterior.model is model
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert {name.rpartition(".")[2] for name in set(after) - set(before)} == {"rho"}
    assert after["layer1.0.conv1.rho"].is_contiguous(memory_format=torch.channels_last)
    model = Mfvi.build(resnet18(width=4), run("mfvi"), Bernoulli()).model
    assert model.load_state_dict(before, strict=False).unexpected_keys == []


class Standardised(nn.Conv2d):
    """A convolution that computes something else."""

    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)


def test_a_user_s_own_network_is_changed_in_place_and_what_stays_is_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.odd = nn.Conv2d(3, 4, 3), Standardised(4, 4, 3)
            self.heads = nn.ModuleDict({"grade": nn.Sequential(nn.ReLU(), nn.Linear(4, 1))})

        def forward(self, x):
            return self.heads["grade"](self.odd(self.stem(x)).mean(dim=(2, 3)))

    model = Own()
    with pytest.warns(UserWarning, match=r"as they are: odd\.weight$"):
        Mfvi.build(model, run("mfvi"), Bernoulli())
    assert [type(m).__name__ for m in (model.stem, model.odd, model.heads["grade"][1])] == [
        "Variational", "Standardised", "Variational",
    ]  # fmt: skip
    use_generator(model, torch.Generator())
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 1)


def test_attention_that_reads_its_weights_past_the_layer_is_left_alone():
    """`nn.MultiheadAttention` never calls its output layer: replacing that one would change nothing, or fail."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.warns(UserWarning, match=r"self_attn\.in_proj_weight, .*self_attn\.out_proj\.weight"):
        Mfvi.build(model, run("mfvi"), Bernoulli())
    assert [name for name, m in model.named_modules() if isinstance(m, Variational)] == ["linear1", "linear2"]
    use_generator(model, torch.Generator())
    assert model(torch.zeros(2, 5, 8)).shape == (2, 5, 8)
    # In evaluation torch would hand the means to a fused kernel, past the layers that draw.
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert not torch.equal(model.eval()(x), model(x))


def test_a_layer_used_twice_stays_one_layer_and_counts_once():
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    Mfvi.build(model, run("mfvi"), Bernoulli())
    assert model[0] is model[2]
    assert len(kl_terms(model)) == 1


def test_a_network_that_reads_the_geometry_of_its_layers_finds_it():
    """EfficientNet pads by the kernel and the stride of a convolution."""
    model = build_model(ModelConfig(name="efficientnet_lite0"), seed=0)
    Mfvi.build(model, run("mfvi"), Bernoulli())
    use_generator(model, torch.Generator())
    assert model(torch.zeros(2, 3, 33, 33)).shape == (2, 1)


def test_a_stage_that_is_not_trained_is_left_alone(recwarn):
    """Its new layers would stay in training mode, in which frozen stages cannot be set."""
    model = resnet18(width=4)
    freeze(model.layer1)
    Mfvi.build(model, run("mfvi"), Bernoulli())
    changed = {name.partition(".")[0] for name, m in model.named_modules() if isinstance(m, Variational)}
    assert changed == {"conv1", "layer2", "layer3", "layer4", "fc"}
    assert not recwarn.list


@pytest.mark.parametrize(("build", "places"), [(resnet50, 37), (resnet18, 12), (resnet34, 20)])
def test_dropout_goes_behind_every_inner_activation_and_each_projection(build, places):
    # ResNet-50: 1 stem + 2 in each of 16 blocks + 4 projections. ResNet-18/34: 1 + one per block + 3 projections.
    model = build(width=4)
    before = set(model.state_dict())
    add_dropout(model, 0.1)
    assert sum(isinstance(m, Dropout) for m in model.modules()) == places
    assert set(model.state_dict()) == before


def test_dropout_finds_the_activations_of_other_packages_and_layers_with_names():
    class GELU(nn.Module):  # as in timm
        def forward(self, x):
            return nn.functional.gelu(x)

    class Own(nn.ReLU):
        pass

    parts = OrderedDict(fc1=nn.Linear(2, 3), act=GELU(), fc2=nn.Linear(3, 3), gate=nn.Sigmoid(), last=Own())
    net = nn.Sequential(parts)
    assert dropout_sites(net) == ("act", "last")
    add_dropout(net, 0.9)
    use_generator(net, torch.Generator().manual_seed(0))
    passes = [net(torch.ones(5, 2)) for _ in range(2)]
    assert not torch.equal(*passes)


def test_a_network_of_timm_whose_trunk_ends_in_a_norm_has_dropout_before_its_head_too():
    """ConvNeXt's residual branches begin with a factor of 1e-6, so that noise in them alone changes no prediction."""
    trunk = [nn.Linear(3, 4), nn.ReLU()]
    assert dropout_sites(TimmNetwork(nn.Sequential(*trunk), 4, 1)) == ("backbone.1",)
    network = TimmNetwork(nn.Sequential(*trunk, nn.LayerNorm(4)), 4, 1)
    before = set(network.state_dict())
    assert dropout_sites(network) == ("backbone.1", "pooled")
    assert set(add_dropout(network, 0.1).state_dict()) == before
    for layer in trunk:
        layer.requires_grad_(False)
    assert dropout_sites(network) == ("pooled",)


def test_frozen_stages_stay_without_noise():
    network = efficientnet_lite0()
    assert len(dropout_sites(network)) == 33  # of the stem, of the first block one, of 15 blocks two each, of the head
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
