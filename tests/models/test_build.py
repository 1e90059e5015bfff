"""Settings, registry and construction of networks."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.methods.dropout import McDropout
from retinabench.methods.training import loop
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model, build_published, compile_network, set_arithmetic
from retinabench.models.registry import MODELS, has_choice, published_width, special_inputs, takes
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


CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def as_before():
    kept = (
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32,
    )
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = (
        kept
    )


def test_tf32_is_used_where_it_is_asked_for_and_nowhere_else():
    for precision in ("float32", "tf32", "bfloat16"):
        set_arithmetic(precision, GPU)
        asked = precision == "tf32"
        assert torch.backends.cudnn.allow_tf32 is asked
        assert torch.backends.cuda.matmul.allow_tf32 is asked
        assert torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    set_arithmetic("tf32", CPU)
    assert not torch.backends.cudnn.benchmark


def test_a_network_is_compiled_unless_its_layers_draw(monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    run = load_run(None, ["model.name=lenet", "method=dropout"], data="none")
    plain = build_model(run.model, 0)
    compile_network(plain, fall_back=False)
    assert compiled == [plain]
    compile_network(McDropout.build(plain, run, Bernoulli()).model, fall_back=True)
    assert compiled == [plain]


def test_a_step_is_one_kernel_on_a_gpu_only(monkeypatch):
    config = load_run(None, ["optimizer.name=adam"], data="none").optimizer
    assert loop.make_optimizer(nn.Linear(2, 1), config).defaults["fused"] is None
    made = {}
    monkeypatch.setattr(torch.optim, "Adam", lambda groups, **options: made.update(options))
    with torch.device("meta"):
        network = nn.Linear(2, 1)
    monkeypatch.setattr(nn.Parameter, "device", GPU, raising=False)
    loop.make_optimizer(network, config)
    assert made["fused"] is True


def test_a_precision_that_nothing_names_is_that_of_the_device(monkeypatch):
    assert Resources("cpu").precision() is None
    assert load_run(None, [], "bfloat16", data="none").optimizer.precision == "bfloat16"
    named = load_run(None, ["optimizer.precision=float32"], "bfloat16", data="none")
    assert named == load_run(None, [], data="none")


def test_two_cards_asked_for_and_one_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        InputError, match=r"no device 'cuda:1' here\. Valid: auto, cpu, cuda, cuda:N; this machine has 1 GPU"
    ):
        Resources("cuda:1").torch_device()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(
        InputError,
        match=r"no device 'cuda:1' here\. Give torchrun --nproc-per-node 1: this machine has 1 GPU",
    ):
        Resources().torch_device()


def test_widths_inputs_and_choices_are_read_off_the_builder():
    assert published_width("resnet50") == 64
    assert published_width("mlp-8-50-2") == 50
    assert special_inputs("alexnet-swish") == "images of 32 x 32 pixels"
    assert special_inputs("resnet18") == ""
    assert has_choice("resnet18", "stem")
    assert not has_choice("lenet", "stem")


def test_a_builder_is_marked_by_what_it_takes():
    @takes("tokens")
    def build(*, outputs=1):
        return outputs

    assert build.inputs == "tokens"
    assert build(outputs=2) == 2


def test_an_unknown_network_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown model 'resnet19'.*'resnet18'"):
        MODELS.find("resnet19")


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


@pytest.mark.parametrize(
    "name", ["timm:hf-hub:a/b", "timm:local-dir:/x", "timm:../../x", "timm:a/b", "timm:"]
)
def test_a_name_of_timm_is_no_address_and_no_path(name):
    with pytest.raises(ValueError, match="unknown model"):
        ModelConfig(name=name)


def test_weights_of_the_hub_need_their_hash():
    with pytest.raises(ValueError, match="fetched without a check"):
        ModelConfig(name="resnet18", weights="hf-hub:a/b")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["model.trained=0"],
            "model.trained: should be 'all', 'head' or a number of stages from 1 .given: 0",
        ),
        (["model.trained=heads"], "should be 'all', 'head' or a number of stages from 1"),
        (["model.trained=2"], "cannot stay as it is. Set model.weights"),
        (
            ["model.layer_decay=0.5"],
            "model.layer_decay is of a pretrained trunk. Set model.weights, or leave",
        ),
        (["model.trunk_lr=0.5"], "model.trunk_lr is of a pretrained trunk"),
    ],
)
def test_what_is_trained_is_said_in_full(words, says):
    with pytest.raises(InputError, match=says):
        load_run(None, words, data="d")
