"""Rank-1: the learning rate of its distributions, and the shares of its components."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.optimizers import make_optimizer
from retinabench.methods.variational import rank1
from retinabench.models.networks.resnet import resnet18


def run(name, *words):
    return load_run(None, [f"method.name={name}", *words], data="d")


def test_rank1_sets_the_pace_of_its_distributions_alone():
    settings = run("rank1")
    model = rank1.build(resnet18(width=4), settings, Bernoulli()).model
    groups = {}
    for norms in (False, True):
        optimizer = make_optimizer(model, settings.optimizer)
        rank1.set_pace(optimizer, rank1.fast_parameters(model, norms=norms), 0.6)
        places = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        assert (
            len(places)
            == sum(len(group["params"]) for group in optimizer.param_groups)
            == len(list(model.parameters()))
        )
        groups[norms] = {name: places[id(p)] for name, p in model.named_parameters()}
    for name, group in groups[False].items():
        fast = name.endswith(("_mean", "_rho"))
        assert group.get("lr_factor", 1.0) == (0.6 if fast else 1.0)
        assert (group["weight_decay"] > 0) == name.endswith(
            ("conv1.weight", "conv2.weight", "downsample.0.weight", "fc.weight")
        )
    changed = {
        name
        for name in groups[True]
        if groups[True][name].get("lr_factor") != groups[False][name].get("lr_factor")
    }
    assert changed == {name for name in groups[True] if ".bn" in f".{name}" or "downsample.1" in name}


def test_samples_must_give_every_component_its_share():
    with pytest.raises(InputError, match="no multiple of components"):
        run("rank1", "method.components=4", "method.samples=5")
