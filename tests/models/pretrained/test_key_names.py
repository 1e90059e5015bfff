"""The names of parameters in other packages' checkpoints; those of efficientnet-lite-pytorch are tested with its weights."""

import torch
from torch import nn

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
