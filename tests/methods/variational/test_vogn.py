"""VOGN: its single gradients against a loop, parts of a batch against the whole, batch norm, one step by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian
from retinabench.methods.training.losses import BatchInfo, class_weights, cross_entropy
from retinabench.methods.variational import vogn
from retinabench.methods.variational.vogn import Vogn, single_gradients
from retinabench.models.build import build_model
from retinabench.models.networks.mlp import MLP
from support.helpers import TINY, make_prepared

SHORT = TINY[3:]  # without the network
RESNET = TINY[:3]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def by_hand(model, images, labels, shares, likelihood):
    """Σ c g², Σ c g and Σ c ℓ with one backward pass per image."""
    squares = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    gradients = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    total = 0.0
    for image, label, share in zip(images, labels, shares, strict=True):
        model.zero_grad()
        loss = likelihood.negative_log_likelihood(model(image[None]), label[None]).squeeze()
        loss.backward()
        total += float(share * loss.detach())
        for name, p in model.named_parameters():
            squares[name] += share * p.grad.square()
            gradients[name] += share * p.grad
    return squares, gradients, total


@pytest.mark.parametrize(
    ("likelihood", "reweighted"),
    [(Bernoulli(), True), (Bernoulli(), False), (Categorical(5), False), (Gaussian(), False)],
)
def test_single_gradients_are_those_of_a_loop(monkeypatch, likelihood, reweighted):
    monkeypatch.setattr(vogn, "GRADIENT_VALUES", 500)  # a few images at a time
    model = MLP(6, 8, likelihood.outputs, nn.Tanh).eval()
    inputs = torch.randn(20, 6, generator=generator())
    labels = likelihood.sample(torch.zeros(20, likelihood.outputs), generator(1))
    shares = class_weights(labels, labels.mean()) if reweighted else torch.ones(20)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    ours = single_gradients(model, weights, inputs, labels, shares, likelihood)
    loop = by_hand(model, inputs, labels, shares, likelihood)
    for one, other in zip(ours[:2], loop[:2], strict=True):
        for name, value in one.items():
            assert torch.allclose(value, other[name], rtol=1e-4, atol=1e-6), name
    assert float(ours[2]) == pytest.approx(loop[2], rel=1e-5)


@pytest.fixture
def opened(tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))

    def open_run(*words):
        run = load_run(None, [*SHORT, "method.name=vogn", *words], data=prepared)
        return run, make_batches(run, load_task(run.data, run.task), torch.device("cpu"))

    return open_run


@pytest.mark.parametrize("reweight", ["none", "minibatch"])
def test_a_batch_in_parts_is_the_whole_batch(opened, reweight):
    """Without batch norm, up to the rounding of float32 sums in another order over twelve steps."""
    found = []
    for parts in (1, 3):
        run, data = opened("model.name=lenet", f"optimizer.accumulate={parts}", f"optimizer.reweight={reweight}",
                           "method.beta2=0.9")  # fmt: skip
        found.append(vogn.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli()))
    for name, deviation in found[0].stds.items():
        assert torch.allclose(deviation, found[1].stds[name], rtol=1e-4), name
        assert (deviation - 0.005).abs().max() > 1e-5, name
    for one, other in zip(found[0].model.parameters(), found[1].model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("network", [["model.name=lenet"], RESNET], ids=["lenet", "resnet18"])
def test_the_gradient_is_that_of_the_batch_and_the_squares_those_of_the_predicting_network(opened, network):
    """At no width that float32 can hold. With batch norm (resnet18) the two differ; the running statistics move as in any training."""
    run, data = opened(*network, "optimizer.reweight=minibatch")
    model, oracle = build_model(run.model, 0).train(), build_model(run.model, 0).train()
    images, labels = next(data.epoch(0))
    optimizer = Vogn(list(model.parameters()), lr=0.1, lr_factor=1.0, ess=1e20, delta=1e-3, hessian=1.0, beta1=0.9,
                     beta2=0.9)  # fmt: skip
    handed = {}
    optimizer.add = lambda p, squares: handed.__setitem__(p, squares)
    terms = vogn.drawn_objective(model, optimizer, run, Bernoulli())(images, labels, BatchInfo.of(labels))
    terms["cross_entropy"].backward()
    loss = cross_entropy(oracle(images), labels, Bernoulli(), "minibatch", BatchInfo.of(labels))
    loss.backward()
    assert terms["cross_entropy"].item() == pytest.approx(loss.item(), rel=1e-4)
    for p, q in zip(model.parameters(), oracle.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, rtol=1e-2, atol=1e-4 * float(q.grad.abs().max()))
    for ours, theirs in zip(model.buffers(), oracle.buffers(), strict=True):
        assert torch.allclose(ours.float(), theirs.float(), atol=1e-4)
    assert model.training
    oracle.eval()
    squares, _, _ = by_hand(oracle, images, labels, class_weights(labels, labels.mean()), Bernoulli())
    for (key, expected), p in zip(squares.items(), model.parameters(), strict=True):
        tolerance = 1e-3 * float(expected.max()) / len(images)
        assert torch.allclose(handed[p], expected / len(images), rtol=1e-2, atol=tolerance), key


def test_two_steps_are_the_formulas():
    p = nn.Parameter(torch.tensor([1.0, -2.0]))
    options = {"ess": 50.0, "delta": 0.2, "hessian": 0.5, "beta1": 0.9, "beta2": 0.8}
    optimizer = Vogn([p], lr=0.1, lr_factor=1.0, **options)
    assert torch.allclose(optimizer.std(p), torch.full((2,), (50 * 0.7) ** -0.5))
    mean, h, momentum = torch.tensor([1.0, -2.0]), torch.full((2,), 0.5), torch.zeros(2)
    for step, (gradient, parts) in enumerate(
        [([0.3, -0.1], ([0.1, 0.2], [0.3, 0.0])), ([-0.2, 0.4], ([0.5, 0.5],))], start=1
    ):
        p.grad = torch.tensor(gradient)
        for part in parts:  # of a batch: they add up
            optimizer.add(p, torch.tensor(part))
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * torch.tensor(gradient)
        h = 0.8 * h + 0.2 * torch.tensor(parts).sum(dim=0)
        mean = mean - 0.1 * 0.7 * (momentum / (1 - 0.9**step) + 0.2 * mean) / (h + 0.2)
        assert torch.allclose(p.detach(), mean, rtol=1e-6)
        assert torch.allclose(optimizer.std(p), (50 * (h + 0.2)).rsqrt(), rtol=1e-6)


def test_a_colder_posterior_is_narrower(opened):
    """Where the prior outweighs the data, and the start is forgotten: 1 / √(λ δ), half as wide at four times λ."""
    words = [
        "model.name=lenet",
        "optimizer.l2=0.5",
        "optimizer.lr=1e-4",
        "method.std=0.05",
        "method.beta2=0.1",
    ]
    for temperature in (1.0, 0.25):
        run, data = opened(*words, f"method.temperature={temperature}")
        posterior = vogn.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
        widths = torch.cat([d.flatten() for d in posterior.stds.values()])
        assert float(widths.median()) == pytest.approx((64 / temperature) ** -0.5, rel=0.02)
