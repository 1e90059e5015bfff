"""The names of parameters in other packages' checkpoints; those of efficientnet-lite-pytorch are tested with its weights."""

import pytest
import torch
from torch import nn

from retinabench.models.networks.efficientnet_lite import efficientnet_lite0
from retinabench.models.networks.resnet import resnet18
from retinabench.models.pretrained.key_names import named_as


def test_the_norm_of_a_vision_transformer_is_found_under_either_name():
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Module()
            self.backbone.fc_norm = nn.LayerNorm(3)
            self.fc = nn.Linear(3, 1)

    network = Transformer()
    state = {
        "norm.weight": torch.tensor([1.0, 2.0, 3.0]),
        "norm.bias": torch.zeros(3),
        "mask_token": torch.ones(1),
    }
    renamed = named_as(network.backbone, state)
    assert torch.equal(renamed["fc_norm.weight"], state["norm.weight"])


@pytest.mark.parametrize(
    ("prefix", "others"),
    [
        ("", ["decoder.weight"]),
        ("module.model.", []),
        ("model.", ["criterion.pos_weight"]),  # Lightning, with a loss
        (
            "teacher.backbone.",
            ["teacher.dino_head.weight"],
        ),  # DINO and DINOv2
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
    state = {
        "model._conv_stem.weight": torch.ones(1),
        "model._bn1.bias": torch.ones(1),
        "step": torch.ones(1),
    }
    assert {"conv_stem.weight", "bn2.bias"} <= set(named_as(network, state))
