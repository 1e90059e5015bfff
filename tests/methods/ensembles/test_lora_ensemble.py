"""LoRA ensembles: what is trained, what is stored, and members trained apart."""

from __future__ import annotations

import numpy as np
import torch

from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods.ensembles import lora_ensemble
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import train
from retinabench.models.build import build_model
from retinabench.models.pretrained.stages import freeze
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.low_rank import LowRank

NET = ModelConfig(name="resnet18", width=4, stem="small")


def run(members):
    words = ["method=lora_ensemble", f"method.members={members}", "method.rank=2", "optimizer.epochs=2",
             "optimizer.select=last", "optimizer.lr=0.05"]  # fmt: skip
    return load_run(None, words, data="d")


def points():
    random = np.random.default_rng(0)
    images = random.normal(size=(12, 3, 8, 8)).astype(np.float32)
    return array_batches(
        images, (images.mean(axis=(1, 2, 3)) > 0).astype(np.float32), 6, 0, torch.device("cpu")
    )


def own(name):
    """Whether a tensor belongs to a member."""
    return name.endswith((".up", ".down")) or name.startswith("head.layers.")


def test_only_adapters_and_heads_are_trained():
    plain = build_model(NET, seed=3).state_dict()
    posterior = lora_ensemble.fit(build_model(NET, seed=3), points(), run(2), Checkpoint(), Bernoulli())
    state = posterior.state()
    assert {n for n, p in posterior.model.named_parameters() if p.requires_grad} == {
        n for n in state if own(n)
    }
    kept = {name.removeprefix("trunk."): tensor for name, tensor in state.items() if not own(name)}
    assert kept.keys() == plain.keys() - {"fc.weight", "fc.bias"}  # running statistics included
    assert all(torch.equal(tensor, plain[name]) for name, tensor in kept.items())
    moved = [tensor for name, tensor in state.items() if name.endswith(".up")]
    assert len(moved) == 20
    assert all((tensor != 0).any() for tensor in moved)


def test_members_trained_together_are_members_trained_apart():
    """Nothing couples them: norms are fixed. Convolutions of other batch sizes round in another order."""
    batches, together = points(), lora_ensemble.build(build_model(NET, seed=3), run(2), Bernoulli())
    start = together.state()
    objective = lora_ensemble.members_objective(together, batches, run(2))
    train(together, batches, run(2), Checkpoint(), objective=objective)
    images = batches.source.inputs
    found = together.predict(images, 2, torch.Generator())
    for k in range(2):
        apart = lora_ensemble.build(build_model(NET, seed=3), run(1), Bernoulli())
        apart.restore(
            {name: tensor[k : k + 1] if name.endswith((".up", ".down")) else tensor for name, tensor in start.items()
             if not name.startswith("head.layers.")}
            | {name.replace(f"layers.{k}.", "layers.0."): tensor for name, tensor in start.items()
               if name.startswith(f"head.layers.{k}.")}
        )  # fmt: skip
        objective = lora_ensemble.members_objective(apart, batches, run(1))
        train(apart, batches, run(1), Checkpoint(), objective=objective)
        assert torch.allclose(found[k], apart.predict(images, 1, torch.Generator())[0], atol=1e-5)
    assert not torch.allclose(found[0], found[1], atol=1e-4)


def test_the_state_of_k_members_is_the_trunk_and_k_times_adapters_and_head():
    def values(members):
        state = lora_ensemble.build(build_model(NET, seed=3), run(members), Bernoulli()).state()
        return sum(t.numel() for n, t in state.items() if own(n)), sum(
            t.numel() for n, t in state.items() if not own(n)
        )

    (one, trunk), (five, same) = values(1), values(5)
    assert five == 5 * one
    assert trunk == same > one


def test_frozen_stages_have_no_adapters():
    network = build_model(NET, seed=3)
    freeze(network.layer1)
    model = lora_ensemble.build(network, run(1), Bernoulli()).model
    adapted = {name.split(".")[1] for name, m in model.named_modules() if isinstance(m, LowRank)}
    assert adapted == {"conv1", "layer2", "layer3", "layer4"}


def test_its_cost_counts_every_member():
    settings = run(5)
    assert settings.method.gradients_per_example(settings.optimizer) == 10
