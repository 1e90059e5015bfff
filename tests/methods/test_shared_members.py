import copy
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods import map as alone
from retinabench.methods.shared_members import BatchEnsemble, HeadEnsemble, LoraEnsemble
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.models.build import build_model
from retinabench.models.networks.small import Head
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.shared_weights import BatchEnsembleLayer


def test_each_member_is_one_sample():
    def method(*words):
        return load_run(None, ["method.name=batch_ensemble", *words], data="d").method

    assert (method().members, method().samples) == (4, 4)
    assert (method("method.members=7").members, method("method.members=7").samples) == (7, 7)
    assert method("method.members=3", "method.samples=3").samples == 3
    with pytest.raises(InputError, match=r"samples \(5\) is not members \(4\).*Leave out samples"):
        method("method.samples=5")


class Backbone(nn.Module):
    """What timm promises of a model without classifier, with a convolution per group and a linear layer on tokens."""

    def __init__(self):
        super().__init__()
        self.num_features = 6
        self.patches, self.mix = (nn.Conv2d(3, 6, 4, stride=4), nn.Conv2d(6, 6, 3, padding=1, groups=3, bias=False))
        self.norm, self.mlp = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        tokens = self.mix(self.patches(x)).flatten(2).transpose(1, 2)
        return (tokens + self.mlp(self.norm(tokens))).mean(dim=1)


@pytest.fixture(params=["resnet18", "efficientnet_lite0", "timm:tiny"])
def network(request, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=lambda *_, **__: Backbone()))
    size = {"width": 4, "stem": "small"} if request.param == "resnet18" else {}
    return build_model(ModelConfig(name=request.param, **size), seed=3)


def explicit(plain, ensemble, k):
    """Return the plain network with member k's weights and biases."""
    network = copy.deepcopy(plain)
    for name, module in ensemble.named_modules():
        if isinstance(module, BatchEnsembleLayer):
            layer = network.get_submodule(name)
            outer = torch.outer(module.output_factors[k], module.input_factors[k])
            if getattr(layer, "groups", 1) > 1:
                outputs, inputs = layer.weight.shape[:2]
                first = torch.arange(outputs) // (outputs // layer.groups) * inputs
                outer = torch.stack([row[start : start + inputs] for row, start in zip(outer, first, strict=True)])
            layer.weight.data = layer.weight.data * outer.detach()[(...,) + (None,) * (layer.weight.ndim - 2)]
            if layer.bias is not None:
                layer.bias.data = module.bias[k].detach()
    return network.eval()


def test_members_are_networks_with_multiplied_weights_to_the_last_bit(network):
    plain = copy.deepcopy(network)
    run = load_run(None, ["method.name=batch_ensemble", "method.members=3"], data="d", seed=1)
    posterior = BatchEnsemble.build(network, run, Bernoulli())
    assert not [m for m in posterior.model.modules() if type(m) in (nn.Conv2d, nn.Linear)]
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    images = images.contiguous(memory_format=torch.channels_last)
    found = posterior.predict(images, 3, torch.Generator())
    with torch.no_grad():
        expected = [explicit(plain, posterior.model, k)(images).sigmoid()[:, 0] for k in range(3)]
    assert torch.equal(found[..., 1], torch.stack(expected))
    assert not torch.equal(found[0], found[1])
    assert torch.equal(posterior.predict(images, 2, torch.Generator()), found[:2])
    assert torch.equal(posterior.predict(images, 9, torch.Generator()), found)


def test_every_member_is_trained_where_parts_of_a_batch_hold_fewer_images_than_members():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(16, 3)).astype(np.float32)
    batches = array_batches(inputs, (inputs[:, 0] > 0).astype(np.float32), 4, 0, torch.device("cpu"))
    words = ["optimizer.accumulate=2", "optimizer.epochs=1", "optimizer.select=last", "method.members=4"]
    run = load_run(None, ["method.name=batch_ensemble", *words], data="d")
    start = BatchEnsemble.build(nn.Linear(3, 1), run, Bernoulli()).model.input_factors.detach()
    trained = BatchEnsemble.fit(nn.Linear(3, 1), batches, run, Checkpoint(), Bernoulli()).model
    assert ((trained.input_factors != start).any(dim=1)).all()


CPU = torch.device("cpu")

RUN = load_run(
    None,
    ["method=head_ensemble", "method.members=3", "optimizer.epochs=3", "optimizer.select=last", "optimizer.l2=0.01"],
    data="d",
)  # fmt: skip


def points(*shape):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(24, *shape)).astype(np.float32)
    return array_batches(inputs, (inputs.reshape(24, -1)[:, 0] > 0).astype(np.float32), 8, RUN.seed, CPU)


@pytest.mark.parametrize("hidden", [None, 4])
def test_heads_trained_together_are_heads_trained_alone(hidden):
    """The arithmetic is that of one head; sums over the members' losses round once more."""
    batches = points(5)
    start = copy.deepcopy(HeadEnsemble.build(Head(5, 1, hidden), RUN, Bernoulli()).model.head.layers)
    together = HeadEnsemble.fit(Head(5, 1, hidden), batches, RUN, Checkpoint(), Bernoulli())
    probs = together.predict(batches.source.inputs, 3, torch.Generator())
    for head, found, prob in zip(start, together.model.head.layers, probs, strict=True):
        single = RUN.model_copy(update={"method": load_run(None, data="d").method})
        trained = alone.fit(copy.deepcopy(head), batches, single, Checkpoint(), Bernoulli())
        for one, other in zip(found.parameters(), trained.model.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-6)
        assert torch.allclose(prob, trained.predict(batches.source.inputs, 1, torch.Generator())[0], atol=1e-6)
    assert not torch.equal(probs[0], probs[1])


def test_a_trained_trunk_gets_the_mean_of_the_heads_gradients():
    network = build_model(ModelConfig(name="resnet18", width=4, stem="small"), seed=0).eval()
    plain = copy.deepcopy(network)
    posterior = HeadEnsemble.build(network, RUN, Bernoulli())
    images, labels = torch.rand(6, 3, 8, 8), torch.tensor([0.0, 1, 1, 0, 1, 0])
    objective = HeadEnsemble.objective(posterior, points(5), RUN)
    sum(objective(images, labels, BatchInfo.of(labels)).values()).backward()
    gradients = []
    for head in posterior.model.head.layers:
        single = copy.deepcopy(plain)
        single.fc.load_state_dict(head.state_dict())
        objective = likelihood_only(single, points(5), RUN, Bernoulli())
        sum(objective(images, labels, BatchInfo.of(labels)).values()).backward()
        gradients.append(single.conv1.weight.grad)
        assert torch.allclose(single.fc.weight.grad, head.weight.grad, atol=1e-6)
    mean = torch.stack(gradients).mean(dim=0)
    assert torch.allclose(posterior.model.trunk.conv1.weight.grad, mean, atol=1e-6)


NET = ModelConfig(name="resnet18", width=4, stem="small")


def run(members):
    words = ["method=lora_ensemble", f"method.members={members}", "method.rank=2", "optimizer.epochs=2",
             "optimizer.select=last", "optimizer.lr=0.05"]  # fmt: skip
    return load_run(None, words, data="d")


def points_of_lora_ensemble():
    random = np.random.default_rng(0)
    images = random.normal(size=(12, 3, 8, 8)).astype(np.float32)
    return array_batches(images, (images.mean(axis=(1, 2, 3)) > 0).astype(np.float32), 6, 0, torch.device("cpu"))


def own(name):
    """Whether a tensor belongs to a member."""
    return name.endswith((".up", ".down")) or name.startswith("head.layers.")


def test_only_adapters_and_heads_are_trained():
    plain = build_model(NET, seed=3).state_dict()
    posterior = LoraEnsemble.fit(build_model(NET, seed=3), points_of_lora_ensemble(), run(2), Checkpoint(), Bernoulli())
    state = posterior.state()
    assert {n for n, p in posterior.model.named_parameters() if p.requires_grad} == {n for n in state if own(n)}
    kept = {name.removeprefix("trunk."): tensor for name, tensor in state.items() if not own(name)}
    assert kept.keys() == plain.keys() - {"fc.weight", "fc.bias"}  # running statistics included
    assert all(torch.equal(tensor, plain[name]) for name, tensor in kept.items())
    moved = [tensor for name, tensor in state.items() if name.endswith(".up")]
    assert len(moved) == 20
    assert all((tensor != 0).any() for tensor in moved)


def test_members_trained_together_are_members_trained_apart():
    """Nothing couples them: norms are fixed. Convolutions of other batch sizes round in another order."""
    batches, together = (points_of_lora_ensemble(), LoraEnsemble.build(build_model(NET, seed=3), run(2), Bernoulli()))
    start = together.state()
    objective = LoraEnsemble.objective(together, batches, run(2))
    train(together, batches, run(2), Checkpoint(), objective=objective)
    images = batches.source.inputs
    found = together.predict(images, 2, torch.Generator())
    for k in range(2):
        apart = LoraEnsemble.build(build_model(NET, seed=3), run(1), Bernoulli())
        apart.restore(
            {name: tensor[k : k + 1] if name.endswith((".up", ".down")) else tensor for name, tensor in start.items()
             if not name.startswith("head.layers.")}
            | {name.replace(f"layers.{k}.", "layers.0."): tensor for name, tensor in start.items()
               if name.startswith(f"head.layers.{k}.")}
        )  # fmt: skip
        objective = LoraEnsemble.objective(apart, batches, run(1))
        train(apart, batches, run(1), Checkpoint(), objective=objective)
        assert torch.allclose(found[k], apart.predict(images, 1, torch.Generator())[0], atol=1e-5)
    assert not torch.allclose(found[0], found[1], atol=1e-4)
