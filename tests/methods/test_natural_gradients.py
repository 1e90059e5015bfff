"""IVON and VOGN."""

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.methods import natural_gradients
from retinabench.methods.natural_gradients import Vogn, VognOptimizer, initial_hessian, next_hessian, next_mean
from retinabench.methods.training.gradients import BatchInfo, class_weights, cross_entropy
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian
from retinabench.models.build import build_model
from retinabench.models.networks.small import MLP
from support.helpers import TINY, generator


def test_the_start_is_as_wide_as_asked_and_no_wider_than_the_prior():
    ess, delta = 600.0, 5e-4
    hessian = initial_hessian(0.01, ess, delta)
    assert (ess * (hessian + delta)) ** -0.5 == pytest.approx(0.01)
    with pytest.raises(InputError, match=r"method.std 2 is wider than the prior, 1\.83"):
        initial_hessian(2.0, ess, delta)


def test_a_step_is_that_of_newton_with_the_prior_and_is_clipped():
    mean, momentum, h = torch.tensor([1.0, -2.0]), torch.tensor([0.3, 0.9]), torch.tensor([2.0, 0.1])
    direction = (momentum / 0.5 + 0.2 * mean) / (h + 0.2)
    torch.testing.assert_close(next_mean(mean, momentum, h, 0.1, 0.2, 0.5, 0.0), mean - 0.1 * direction)
    clipped = next_mean(mean, momentum, h, 0.1, 0.2, 0.5, 1.0)
    torch.testing.assert_close(clipped, mean - 0.1 * direction.clamp(-1, 1))
    assert direction[1] > 1


def test_25_steps_on_a_quadratic_are_the_recorded_ones(shared, monkeypatch):
    golden = np.load(shared("golden", "fidelity", "golden_ivon_steps.npz"))
    given = {name: float(golden[name]) for name in ("ess", "beta1", "beta2", "lr")}
    Q, b = torch.from_numpy(golden["Q"]), torch.from_numpy(golden["b"])
    w = nn.Parameter(torch.from_numpy(golden["mean_init"]))
    about = {"delta": float(golden["weight_decay"]), "hessian": float(golden["hess_init"])}
    optimizer = natural_gradients.IvonOptimizer([w], lr_factor=1.0, **about, **given)
    for step, eps in enumerate(torch.from_numpy(golden["eps"])):
        monkeypatch.setattr(torch, "randn", lambda *_, eps=eps, **__: eps)
        optimizer.zero_grad()
        theta = optimizer.perturbed({"w": w}, torch.Generator())["w"]
        assert np.allclose((theta - w).detach(), golden["noise"][step], rtol=1e-10)
        (0.5 * theta @ Q @ theta - b @ theta).backward()
        assert np.allclose(w.grad, golden["grad"][step], rtol=1e-10)
        optimizer.step()
        state = optimizer.state[w]
        for name, value in (("momentum", state["momentum"]), ("hess", state["hessian"]), ("mean", w.detach())):
            assert np.allclose(value, golden[name][step], rtol=1e-10, atol=1e-13), (name, step)


SHORT = TINY[3:]  # without the network
RESNET = TINY[:3]


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
    monkeypatch.setattr(natural_gradients, "GRADIENT_VALUES", 500)  # a few images at a time
    model = MLP(6, 8, likelihood.outputs, nn.Tanh).eval()
    inputs = torch.randn(20, 6, generator=generator())
    labels = likelihood.sample(torch.zeros(20, likelihood.outputs), generator(1))
    shares = class_weights(labels, labels.mean()) if reweighted else torch.ones(20)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    ours = natural_gradients.single_gradients(model, weights, inputs, labels, shares, likelihood)
    loop = by_hand(model, inputs, labels, shares, likelihood)
    for one, other in zip(ours[:2], loop[:2], strict=True):
        for name, value in one.items():
            assert torch.allclose(value, other[name], rtol=1e-4, atol=1e-6), name
    assert float(ours[2]) == pytest.approx(loop[2], rel=1e-5)


@pytest.mark.parametrize("network", [["model.name=lenet"], RESNET], ids=["lenet", "resnet18"])
def test_the_gradient_is_that_of_the_batch_and_the_squares_those_of_the_predicting_network(opened, network):
    """At no width that float32 can hold. With batch norm (resnet18) the two differ; the running statistics move as in any training."""
    run, data = opened(*SHORT, "method.name=vogn", *network, "optimizer.reweight=minibatch")
    model, oracle = build_model(run.model, 0).train(), build_model(run.model, 0).train()
    images, labels = next(data.epoch(0))
    optimizer = VognOptimizer(list(model.parameters()), lr=0.1, lr_factor=1.0, ess=1e20, delta=1e-3, hessian=1.0, beta1=0.9,
                     beta2=0.9)  # fmt: skip
    handed = {}
    optimizer.add = lambda p, squares: handed.__setitem__(p, squares)
    batch = BatchInfo.of(labels, reweight="minibatch")
    terms = Vogn.objective(model, optimizer, run, Bernoulli())(images, labels, batch)
    terms["cross_entropy"].backward()
    loss = cross_entropy(oracle(images), labels, Bernoulli(), BatchInfo.of(labels, reweight="minibatch"))
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
    optimizer = VognOptimizer([p], lr=0.1, lr_factor=1.0, **options)
    assert torch.allclose(optimizer.std(p), torch.full((2,), (50 * 0.7) ** -0.5))
    mean, h, momentum = torch.tensor([1.0, -2.0]), torch.full((2,), 0.5), torch.zeros(2)
    batches = ([0.3, -0.1], ([0.1, 0.2], [0.3, 0.0])), ([-0.2, 0.4], ([0.5, 0.5],))
    for step, (gradient, parts) in enumerate(batches, start=1):
        p.grad = torch.tensor(gradient)
        for part in parts:  # of a batch: they add up
            optimizer.add(p, torch.tensor(part))
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * torch.tensor(gradient)
        h = 0.8 * h + 0.2 * torch.tensor(parts).sum(dim=0)
        mean = mean - 0.1 * 0.7 * (momentum / (1 - 0.9**step) + 0.2 * mean) / (h + 0.2)
        assert torch.allclose(p.detach(), mean, rtol=1e-6)
        assert torch.allclose(optimizer.std(p), (50 * (h + 0.2)).rsqrt(), rtol=1e-6)


def test_one_step_and_its_clipping_are_the_recorded_ones(shared):
    golden = np.load(shared("golden", "fidelity", "golden_ivon_single.npz"))
    hess, squares, mean, momentum = (torch.from_numpy(golden[name]) for name in ("hess", "avg_gsq", "mean", "momentum"))
    delta, clip = float(golden["weight_decay"]), float(golden["clip_radius"])
    h = next_hessian(hess, float(golden["ess"]) * squares, float(golden["beta2"]), delta)
    assert np.allclose(h, golden["hess_new_gradsq"], rtol=1e-12)
    moved = next_mean(mean, momentum, hess, float(golden["lr"]), delta, 1.0, clip)
    assert np.allclose(moved, golden["mean_new_clipped"], rtol=1e-12)
    assert not np.allclose(moved, next_mean(mean, momentum, hess, float(golden["lr"]), delta, 1.0, 0.0))
