import copy

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.models.foreign import MADE
from retinabench.models.last_layer import split_last_layer
from retinabench.models.networks import resnet


class Nested(nn.Module):
    """A network of somebody else: its last layer sits two levels deep."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Tanh())
        self.top = nn.ModuleDict({"classifier": nn.Sequential(nn.Dropout(0.0), nn.Linear(7, 3, bias=False))})

    def forward(self, x):
        return self.top["classifier"](self.stem(x))


class Followed(nn.Module):
    """A user's network, whose logits pass through something else."""

    def __init__(self, after):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.BatchNorm1d(7), nn.Dropout(0.5))
        self.answer, self.after = nn.Linear(7, 1), after
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))
        setattr(self, MADE, True)

    def forward(self, x):
        self.calls += 1
        return self.after(self.answer(self.stem(x)), self.scale)


class Aside(nn.Module):
    """Its last registered linear layer does not give the logits."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(12, 2)
        self.mix = nn.Linear(12, 12)

    def forward(self, x):
        return self.logits(self.mix(x.flatten(1)))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (resnet.resnet18(width=4, outputs=2, stem="small"), (3, 3, 16, 16)),
        (Nested(), (3, 3, 2, 2)),
        (nn.Linear(4, 2), (3, 4)),
    ],
)
def test_the_split_network_is_the_network(model, shape):
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    expected = copy.deepcopy(model).eval()(images)
    network = split_last_layer(model).eval()
    assert torch.equal(network(images), expected)
    features = network.features(images)
    assert features.shape == (3, network.width)
    assert torch.equal(network.head(features), expected)
    if hasattr(model, "features"):
        assert torch.equal(features, model.features(images))


def test_a_last_layer_that_is_not_the_last_is_refused():
    network = split_last_layer(Aside())
    with pytest.raises(InputError, match=r"last linear layer 'mix'.*\(3, 2\), not \(3, 12\)"):
        network(torch.rand(3, 3, 2, 2))
    with pytest.raises(InputError, match="no linear layer"):
        split_last_layer(nn.Conv2d(3, 1, 1))


@pytest.mark.parametrize(
    "after",
    [
        lambda logits, scale: logits - 3, lambda logits, scale: torch.sigmoid(logits),
        lambda logits, scale: torch.relu(logits), lambda logits, scale: logits * scale,
    ],
    ids=["shift", "sigmoid", "relu", "scale"],
)  # fmt: skip
def test_a_network_of_a_user_with_something_after_its_last_layer_is_refused(after):
    network = split_last_layer(Followed(after))
    with pytest.raises(InputError, match=r"last linear layer 'answer': something follows it.*Choose a method"):
        network(torch.rand(3, 3, 2, 2))


def test_the_check_of_what_follows_the_last_layer_leaves_no_trace():
    images = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    model = Followed(lambda logits, scale: logits.flatten(1))
    model.stem[2].eval()
    twin = copy.deepcopy(model)
    torch.manual_seed(3)
    expected, state = twin(images), torch.get_rng_state()
    network = split_last_layer(model)
    torch.manual_seed(3)
    assert torch.equal(network(images), expected)
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in (model, model.stem[2], model.stem[3])] == [True, False, True]
    assert all(torch.equal(one, other) for one, other in zip(model.buffers(), twin.buffers(), strict=True))
