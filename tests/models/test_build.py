import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.dropout import McDropout
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model, compile_network
from retinabench.models.last_layer import split_last_layer
from retinabench.models.registry import MODELS, published_width, special_inputs
from retinabench.models.settings import ModelConfig


@pytest.mark.parametrize("name", [name for name in MODELS if not special_inputs(name)])
def test_every_network_builds_from_its_seed_and_splits_at_the_last_layer(name):
    config = ModelConfig(name=name, **({"width": 4} if published_width(name) else {}))
    nets = [build_model(config, seed).eval() for seed in (3, 3, 4)]
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outs = [net(x) for net in nets]
        split = split_last_layer(build_model(config, 3).eval())
        assert torch.equal(outs[0], split.head(split.features(x)))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_glorot_and_he_scales():
    weight = build_model(ModelConfig(name="vgg"), 0).group5[2].weight.detach()
    bound = (6 / (2 * 256 * 9)) ** 0.5
    assert float(weight.abs().max()) == pytest.approx(bound, rel=1e-4)
    # 590,000 draws: relative standard error of the scale 0.06 %.
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.004)
    hidden = build_model(ModelConfig(name="lenet", width=24), 0).fc1.weight.detach()
    assert float(hidden.std()) == pytest.approx((2 / hidden.shape[1]) ** 0.5, rel=0.01)


def test_a_network_is_compiled_unless_its_layers_draw(monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    run = load_run(None, ["model.name=lenet", "method=dropout"], data="none")
    plain = build_model(run.model, 0)
    compile_network(plain, fall_back=False)
    assert compiled == [plain]
    compile_network(McDropout.build(plain, run, Bernoulli()).model, fall_back=True)
    assert compiled == [plain]


def test_a_name_of_timm_is_no_address_and_no_path():
    for name in ("timm:hf-hub:a/b", "timm:local-dir:/x", "timm:../../x", "timm:a/b", "timm:"):
        with pytest.raises(ValueError, match="unknown model"):
            ModelConfig(name=name)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model.name=vgg", "model.stem=small"], "has one stem"),
        (["model.name=timm:x", "model.width=8"], "has one width"),
        (["model.name=vgg", "model.size=224"], "is not made for one size of images. Leave out model.size"),
        (["model.name=timmx"], "Did you mean 'timm:NAME'"),
        (["model.name=cnn-lstm"], "takes tokens, not images"),
        (["model.name=mlp-8-50-2"], "takes tables of 8 numbers, not images"),
        (["model.name=resnet18", "model.weights=hf-hub:a/b"], "fetched without a check"),
        (["model.trained=0"], "model.trained: should be 'all', 'head' or a number of stages from 1 .given: 0"),
        (["model.trained=heads"], "should be 'all', 'head' or a number of stages from 1"),
        (["model.trained=2"], "cannot stay as it is. Set model.weights"),
        (["model.layer_decay=0.5"], "model.layer_decay is of a pretrained trunk. Set model.weights, or leave"),
        (["model.trunk_lr=0.5"], "model.trunk_lr is of a pretrained trunk"),
    ],
)
def test_settings_that_no_network_has_are_refused(words, says):
    with pytest.raises(InputError, match=says):
        load_run(None, words, data="d")
