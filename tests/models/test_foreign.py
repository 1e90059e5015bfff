import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.models.build import build_model, build_trunk, check_size
from retinabench.models.foreign import named_network, own_network, source_of
from retinabench.models.last_layer import last_linear, split_last_layer
from retinabench.models.settings import ModelConfig
from support import own_network as mine


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


HERE = "support.own_network:"


def test_its_last_layer_is_the_one_that_gives_the_logits_wherever_it_is_defined():
    network = own_network(HERE + "make", 0, 1)
    assert last_linear(network) == "answer"
    images = torch.rand(2, 3, 16, 16)
    expected = network.eval()(images)
    split = split_last_layer(network)
    assert split.features(images).shape == (2, 16)
    assert torch.equal(split(images), expected)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:make", r"no_such_module: cannot be imported \(ModuleNotFoundError"),
        (HERE + "mak", r"own_network\.py: has no function 'mak'"),
        (HERE + "SAME", "is a Pooled, not a function that returns a network"),
        (HERE + "HERE", "has no function 'HERE'"), (HERE + "a_number", "returns a int, not an nn.Module"),
        ("os:getcwd", "^'os:getcwd' returns a str, not an nn.Module"),
        (HERE + "broken", "raises RuntimeError: no weights here"), (HERE + "leaves", "raises SystemExit: 3"),
        (HERE + "double", r"RuntimeError: .*parameters of torch\.float64, .*return network\.float\(\)"),
        (HERE + "lazy", "has lazy layers"), (HERE + "empty", "has no parameters to train"),
        (HERE + "two_logits", r"gives \(2, 2\) for 2 images, not logits of shape \(2, 1\)"),
    ],
)  # fmt: skip
def test_what_is_no_network_is_refused_in_one_line(name, says):
    with pytest.raises(InputError, match=says) as error:
        check_size(ModelConfig(name=name), 16)
    assert "\n" not in str(error.value)


def test_a_function_that_no_other_process_could_import_is_refused():
    with pytest.raises(ValueError, match=r"<lambda> cannot be imported by other processes\. Put it into a module"):
        ModelConfig(name=lambda: nn.Linear(1, 1))
    with pytest.raises(ValueError, match="a Pooled is not a function that makes a network"):
        ModelConfig(name=mine.Pooled())


def test_the_current_folder_is_looked_in_and_the_file_is_known(tmp_path, monkeypatch):
    (tmp_path / "found_here.py").write_text("from support.own_network import Pooled\ndef net():\n    return Pooled()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert build_model(ModelConfig(name="found_here:net"), seed=0)
    source = source_of("found_here:net")
    assert source.file == str(tmp_path / "found_here.py")
    assert len(source.sha256) == 64
    del sys.modules["found_here"]


def test_its_code_runs_only_where_the_caller_names_it(tmp_path):
    assert named_network("resnet18", None, tmp_path, own=False) == "resnet18"
    assert named_network("a:b", "c:d", tmp_path, own=True) == "c:d"
    with pytest.raises(InputError, match=r"If you trust that code .* --model a:b"):
        named_network("a:b", None, tmp_path, own=True)
    with pytest.raises(InputError, match=r"Leave out --model"):
        named_network("resnet18", "a:b", tmp_path, own=False)


def test_pretrained_weights_enter_all_of_it_but_the_last_layer(tmp_path):
    torch.save(mine.make().state_dict(), tmp_path / "w.pt")
    config = ModelConfig(name=mine.make, weights=str(tmp_path / "w.pt"), trained="head")
    trunk, saved = build_trunk(config), torch.load(tmp_path / "w.pt", weights_only=True)
    assert torch.equal(trunk.trunk.weight.weight, saved["weight.weight"])
    assert not torch.equal(trunk.head.weight, saved["answer.weight"])
