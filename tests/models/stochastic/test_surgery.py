"""The surgery: counts on ResNet-50, any network, nothing replaced in silence."""

import copy

import pytest
import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.variational import mfvi, radial, rank1
from retinabench.models.build import build_model
from retinabench.models.networks.resnet import resnet18, resnet50
from retinabench.models.pretrained.stages import freeze
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.drawing import use_generator
from retinabench.models.stochastic.dropout import add_dropout
from retinabench.models.stochastic.surgery import kl, kl_terms, swap
from retinabench.models.stochastic.variational import Variational


def run(method, **options):
    words = [f"method.{key}={value}" for key, value in options.items()]
    return load_run(None, [f"method.name={method}", *words], data="d")


def parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_mfvi_resnet50_has_the_reference_s_terms_and_parameters():
    model = mfvi.build(resnet50(), run("mfvi"), Bernoulli()).model
    assert len(kl_terms(model)) == 54
    # The reference counts the norms' running means and variances too: 2 * 26,560 values that nothing trains.
    running = sum(b.numel() for name, b in model.named_buffers() if "running" in name)
    assert (parameters(model), running) == (46_967_041, 53_120)
    assert parameters(model) + running == 47_020_161


def test_rank1_resnet50_has_the_reference_s_terms_and_parameters():
    options = run("rank1", components=1)
    model = rank1.build(resnet50(), options, Bernoulli()).model
    assert len(kl_terms(model)) == 108
    assert parameters(model) + 53_120 == 23_665_481


def test_parameters_keep_their_names_weights_and_layout():
    model = resnet18(width=4).to(memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    posterior = radial.build(model, run("radial"), Bernoulli())
    after = posterior.model.state_dict()
    assert posterior.model is model
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert {name.rpartition(".")[2] for name in set(after) - set(before)} == {"rho"}
    assert after["layer1.0.conv1.rho"].is_contiguous(memory_format=torch.channels_last)
    assert (
        mfvi.build(resnet18(width=4), run("mfvi"), Bernoulli())
        .model.load_state_dict(before, strict=False)
        .unexpected_keys
        == []
    )


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
    with pytest.warns(UserWarning, match=r"as they are: odd \(Standardised\)$"):
        mfvi.build(model, run("mfvi"), Bernoulli())
    assert [type(m).__name__ for m in (model.stem, model.odd, model.heads["grade"][1])] == [
        "Variational", "Standardised", "Variational",
    ]  # fmt: skip
    use_generator(model, torch.Generator())
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 1)


def test_attention_that_reads_its_weights_past_the_layer_is_left_alone():
    """`nn.MultiheadAttention` never calls its output layer: replacing that one would change nothing, or fail."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.warns(UserWarning, match=r"self_attn \(Multi.*self_attn.out_proj \(NonDyn"):
        mfvi.build(model, run("mfvi"), Bernoulli())
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
    mfvi.build(model, run("mfvi"), Bernoulli())
    assert model[0] is model[2]
    assert len(kl_terms(model)) == 1


def test_a_single_layer_is_a_network_too():
    model = mfvi.build(nn.Linear(3, 1), run("mfvi"), Bernoulli()).model
    assert isinstance(model, Variational)
    assert float(kl(model).detach()) > 0


def test_surgeries_combine_and_copy():
    model = mfvi.build(add_dropout(resnet18(width=4, stem="small"), 0.1), run("mfvi"), Bernoulli()).model
    twin = copy.deepcopy(model)
    outputs = []
    for network in (model, twin):
        use_generator(network, torch.Generator().manual_seed(0))
        outputs.append(network(torch.ones(2, 3, 16, 16)))
    assert torch.equal(*outputs)


def test_the_seed_decides_the_initial_spread():
    one, same, other = (mfvi.build(nn.Linear(9, 9), load_run(None, ["method.name=mfvi"], data="d", seed=seed), Bernoulli()).model.rho
                        for seed in (1, 1, 2))  # fmt: skip
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_what_swap_makes_is_up_to_the_caller():
    model = swap(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), lambda layer: nn.Identity())
    assert isinstance(model[0], nn.Identity)


def test_a_network_that_reads_the_geometry_of_its_layers_finds_it():
    """EfficientNet pads by the kernel and the stride of a convolution."""
    model = build_model(ModelConfig(name="efficientnet_lite0"), seed=0)
    mfvi.build(model, run("mfvi"), Bernoulli())
    use_generator(model, torch.Generator())
    assert model(torch.zeros(2, 3, 33, 33)).shape == (2, 1)


def test_a_stage_that_is_not_trained_is_left_alone(recwarn):
    """Its new layers would stay in training mode, in which frozen stages cannot be set."""
    model = resnet18(width=4)
    freeze(model.layer1)
    mfvi.build(model, run("mfvi"), Bernoulli())
    changed = {name.partition(".")[0] for name, m in model.named_modules() if isinstance(m, Variational)}
    assert changed == {"conv1", "layer2", "layer3", "layer4", "fc"}
    assert not recwarn.list
