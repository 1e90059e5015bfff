"""Head ensembles against heads that are trained alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods import map as alone
from retinabench.methods.ensembles import head_ensemble
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import likelihood_only
from retinabench.methods.training.losses import BatchInfo
from retinabench.models.build import build_model
from retinabench.models.networks.head import Head
from retinabench.models.settings import ModelConfig

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
    start = copy.deepcopy(head_ensemble.build(Head(5, 1, hidden), RUN, Bernoulli()).model.head.layers)
    together = head_ensemble.fit(Head(5, 1, hidden), batches, RUN, Checkpoint(), Bernoulli())
    probs = together.predict(batches.source.inputs, 3, torch.Generator())
    for head, found, prob in zip(start, together.model.head.layers, probs, strict=True):
        single = RUN.model_copy(update={"method": load_run(None, data="d").method})
        trained = alone.fit(copy.deepcopy(head), batches, single, Checkpoint(), Bernoulli())
        for one, other in zip(found.parameters(), trained.model.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-6)
        assert torch.allclose(
            prob, trained.predict(batches.source.inputs, 1, torch.Generator())[0], atol=1e-6
        )
    assert not torch.equal(probs[0], probs[1])


def test_a_trained_trunk_gets_the_mean_of_the_heads_gradients():
    network = build_model(ModelConfig(name="resnet18", width=4, stem="small"), seed=0).eval()
    plain = copy.deepcopy(network)
    posterior = head_ensemble.build(network, RUN, Bernoulli())
    images, labels = torch.rand(6, 3, 8, 8), torch.tensor([0.0, 1, 1, 0, 1, 0])
    objective = head_ensemble.heads_objective(posterior.model, points(5), RUN, Bernoulli())
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
