"""Kept weights: the bits of fresh ones, drawn once, and never those of weights that have changed since."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from retinabench.experiments.config import load_run
from retinabench.methods.posteriors import draw_cache
from retinabench.methods.posteriors.draw_cache import DrawCache
from retinabench.methods.registry import METHODS
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model

OVER_WEIGHTS = ["mfvi", "radial", "rank1", "ivon", "swag"]
TINY = ["model.name=resnet18", "model.width=4", "model.stem=small"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(count=4, seed=5):
    return torch.rand(count, 3, 16, 16, generator=generator(seed)).to(memory_format=torch.channels_last)


def posterior(name):
    run = load_run(None, [*TINY, f"method.name={name}"], data="d")
    made = METHODS[name].build(build_model(run.model, 0), run, Bernoulli())
    if name == "ivon":
        made.stds = {key: torch.full_like(p, 0.02) for key, p in made.stds.items()}
    if name == "swag":
        made.variance = torch.full_like(made.variance, 4e-4)
        made.deviations = 0.02 * torch.randn(3, len(made.variance), generator=generator())
    return made


def fresh(subject, images, seed=1):
    """What a posterior of the same tensors answers that has kept nothing."""
    return replace(subject, cache=DrawCache()).predict(images, 3, generator(seed))


@pytest.fixture
def normals(monkeypatch):
    """Count the draws of normal numbers."""
    drawn, randn = [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, **k: (drawn.append(1), randn(*a, **k))[1])
    return drawn


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_batches_of_one_prediction_draw_once(name, normals):
    subject, images = posterior(name), pictures()
    first = subject.predict(images, 3, generator(1))
    normals.clear()
    second = subject.predict(pictures(seed=6), 3, generator(1))
    assert not normals
    assert torch.equal(first, fresh(subject, images))
    assert torch.equal(second, fresh(subject, pictures(seed=6)))


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_nothing_stale_is_kept(name):
    """After a step of the optimiser, after `restore`, for another seed, for more samples."""
    subject, images = posterior(name), pictures()
    start, before = subject.state(), subject.predict(images, 3, generator(1))
    assert not torch.equal(subject.predict(images, 3, generator(2)), before)
    subject.predict(images, 3, generator(1))
    assert subject.predict(images, 4, generator(1)).shape[0] == 4
    subject.predict(images, 3, generator(1))
    step = torch.optim.SGD(subject.model.parameters(), lr=0.1)
    for p in subject.model.parameters():
        p.grad = torch.full_like(p, 0.05)
    step.step()
    after = subject.predict(images, 3, generator(1))
    assert not torch.equal(after, before)
    assert torch.equal(after, fresh(subject, images))
    subject.restore(start)
    assert torch.equal(subject.predict(images, 3, generator(1)), before)


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_more_than_the_memory_allows_is_drawn_anew_to_the_same_bits(name, normals, monkeypatch):
    subject, images = posterior(name), pictures()
    expected = subject.predict(images, 3, generator(1))
    monkeypatch.setattr(draw_cache, "CACHED_VALUES", 10)
    normals.clear()
    assert torch.equal(subject.predict(images, 3, generator(1)), expected)
    assert normals


def test_gradients_go_through_a_fresh_draw():
    subject, images = posterior("mfvi"), pictures()
    subject.predict(images, 3, generator(1))
    subject.model.eval()
    subject.model(images.repeat(3, 1, 1, 1)).sum().backward()
    assert all(p.grad is not None for p in subject.model.parameters())
