import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.optimizers import parameter_groups
from retinabench.models.build import build_model
from retinabench.models.networks.efficientnet_lite import efficientnet_lite0
from retinabench.models.networks.resnet import resnet18
from retinabench.models.pretrained.stages import fine_tune, stages
from retinabench.models.settings import ModelConfig

NET = {"name": "resnet18", "width": 4, "stem": "small"}


@pytest.fixture
def weights(tmp_path):
    torch.save(build_model(ModelConfig(**NET), seed=7).state_dict(), tmp_path / "w.pt")
    return str(tmp_path / "w.pt")


def test_stages_run_from_input_to_output():
    assert [len(stage) for stage in stages(resnet18(width=4))] == [
        2,
        1,
        1,
        1,
        1,
        1,
    ]  # stem with its norm, four layers, fc
    assert [len(stage) for stage in stages(efficientnet_lite0())] == [2, *[1] * 7, 2, 1]


def test_only_the_chosen_stages_move(weights):
    network = build_model(ModelConfig(**NET, weights=weights, trained=2), seed=0)
    moving = {name.partition(".")[0] for name, p in network.named_parameters() if p.requires_grad}
    assert moving == {"layer3", "layer4", "fc"}
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    network(torch.rand(8, 3, 32, 32)).sum().backward()
    torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1).step()
    changed = {
        n.partition(".")[0] for n, value in network.state_dict().items() if not torch.equal(value, before[n])
    }
    assert changed == {"layer3", "layer4", "fc"}  # the running statistics of frozen norms as well
    with pytest.raises(InputError, match="'resnet18' has 5 stages"):
        build_model(ModelConfig(**NET, weights=weights, trained=6), seed=0)


def test_the_learning_rate_falls_from_the_head_to_the_input(weights):
    network = build_model(ModelConfig(**NET, weights=weights, trunk_lr=0.1, layer_decay=0.5), seed=0)
    factors = {name.partition(".")[0]: getattr(p, "lr_factor", 1.0) for name, p in network.named_parameters()}
    assert factors == pytest.approx(
        {
            "fc": 1,
            "layer4": 0.1,
            "layer3": 0.05,
            "layer2": 0.025,
            "layer1": 0.0125,
            "bn1": 0.00625,
            "conv1": 0.00625,
        }
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
    transformer = nn.ModuleDict(
        {"embedding": Block(), "blocks": nn.Sequential(Block(), Block(), Block()), "norm": nn.LayerNorm(2)}
    )
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
    [
        ("vit_tiny_patch16_224", 13),
        ("swin_tiny_patch4_window7_224", 5),
        ("convnext_atto", 5),
        ("resnet50", 5),
    ],
)
def test_stages_of_timm_s_networks(name, count):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    with torch.device("meta"):
        assert len(stages(timm.create_model(name, num_classes=0))) == count


class Tokens(nn.Module):
    """A trunk of two blocks with a parameter of its own, as the class token of a vision transformer."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 2))
        self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        self.fc = nn.Linear(2, 1)


@pytest.mark.parametrize(("trained", "moves"), [("all", True), (2, False)])
def test_a_parameter_outside_of_all_stages_counts_as_the_one_before_the_first(weights, trained, moves):
    network = Tokens()
    settings = ModelConfig(**NET, weights=weights, trained=trained, trunk_lr=0.1, layer_decay=0.5)
    fine_tune(network, settings)
    assert network.token.lr_factor == pytest.approx(0.025)  # the blocks have .05 and .1
    assert network.token.requires_grad is moves
    assert network.blocks[0].weight.lr_factor == pytest.approx(0.05)


class Classifier(nn.Module):
    """A trunk of two stages, and a classifier of several modules, as torchvision's networks have."""

    def __init__(self, *before):
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU()), nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU())
        )
        self.classifier = nn.Sequential(*before, nn.Linear(2, 1))


def test_the_head_is_of_no_stage_also_inside_a_sequence_of_modules(weights):
    network = Classifier(nn.Dropout(0.2))
    fine_tune(network, ModelConfig(**NET, weights=weights, trained=1, trunk_lr=0.1, layer_decay=0.5))
    assert network.classifier[1].weight.lr_factor == 1
    assert network.features[1][0].weight.lr_factor == pytest.approx(0.1)
    moving = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert {name.rpartition(".")[0] for name in moving} == {"features.1.0", "classifier.1"}


def test_the_head_is_trained_at_its_own_rate_in_a_stage_with_other_layers(weights):
    network = Classifier(nn.Linear(2, 2), nn.ReLU())
    fine_tune(network, ModelConfig(**NET, weights=weights, trained=1, trunk_lr=0.1))
    assert network.classifier[2].weight.lr_factor == 1
    assert network.classifier[0].weight.lr_factor == pytest.approx(0.1)
    moving = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert {name.rpartition(".")[0] for name in moving} == {"classifier.0", "classifier.2"}
