"""IVON: its steps against recorded ones, its Gaussian against a posterior that is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.variational import ivon
from retinabench.methods.variational.ivon import Ivon, next_hessian
from retinabench.methods.variational.natural_gradients import next_mean
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared


def test_25_steps_on_a_quadratic_are_the_recorded_ones(shared, monkeypatch):
    golden = np.load(shared("golden", "fidelity", "golden_ivon_steps.npz"))
    given = {name: float(golden[name]) for name in ("ess", "beta1", "beta2", "lr")}
    Q, b = torch.from_numpy(golden["Q"]), torch.from_numpy(golden["b"])
    w = nn.Parameter(torch.from_numpy(golden["mean_init"]))
    optimizer = Ivon(
        [w], lr_factor=1.0, delta=float(golden["weight_decay"]), hessian=float(golden["hess_init"]), **given
    )
    for step, eps in enumerate(torch.from_numpy(golden["eps"])):
        monkeypatch.setattr(torch, "randn", lambda *_, eps=eps, **__: eps)
        optimizer.zero_grad()
        theta = optimizer.perturbed({"w": w}, torch.Generator())["w"]
        assert np.allclose((theta - w).detach(), golden["noise"][step], rtol=1e-10)
        (0.5 * theta @ Q @ theta - b @ theta).backward()
        assert np.allclose(w.grad, golden["grad"][step], rtol=1e-10)
        optimizer.step()
        state = optimizer.state[w]
        for name, value in (
            ("momentum", state["momentum"]),
            ("hess", state["hessian"]),
            ("mean", w.detach()),
        ):
            assert np.allclose(value, golden[name][step], rtol=1e-10, atol=1e-13), (name, step)


def test_one_step_and_its_clipping_are_the_recorded_ones(shared):
    golden = np.load(shared("golden", "fidelity", "golden_ivon_single.npz"))
    hess, squares, mean, momentum = (
        torch.from_numpy(golden[name]) for name in ("hess", "avg_gsq", "mean", "momentum")
    )
    delta, clip = float(golden["weight_decay"]), float(golden["clip_radius"])
    h = next_hessian(hess, float(golden["ess"]) * squares, float(golden["beta2"]), delta)
    assert np.allclose(h, golden["hess_new_gradsq"], rtol=1e-12)
    moved = next_mean(mean, momentum, hess, float(golden["lr"]), delta, 1.0, clip)
    assert np.allclose(moved, golden["mean_new_clipped"], rtol=1e-12)
    assert not np.allclose(moved, next_mean(mean, momentum, hess, float(golden["lr"]), delta, 1.0, 0.0))


def test_three_steps_are_the_equations_of_the_paper():
    """Algorithm 1 of Shen et al. (2024) in NumPy, on a quadratic in three weights with given noise."""
    random = np.random.default_rng(5)
    root = random.normal(size=(3, 3))
    A, b = root @ root.T + np.eye(3), random.normal(size=3)
    ess, delta, lr, beta1, beta2, m, h = 40.0, 0.3, 0.2, 0.9, 0.8, np.zeros(3), np.full(3, 0.5)
    w = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = Ivon([w], lr=lr, lr_factor=1.0, ess=ess, delta=delta, hessian=0.5, beta1=beta1, beta2=beta2)
    momentum, generator = np.zeros(3), torch.Generator().manual_seed(0)
    for step in range(1, 4):
        optimizer.zero_grad()
        theta = optimizer.perturbed({"w": w}, generator)["w"]
        drawn = theta.detach().numpy() - m  # m + ε / √(λ (h + δ))
        (0.5 * theta @ torch.from_numpy(A) @ theta - torch.from_numpy(b) @ theta).backward()
        optimizer.step()
        g = A @ (m + drawn) - b
        curvature = ess * (h + delta) * drawn * g
        momentum = beta1 * momentum + (1 - beta1) * g
        h = beta2 * h + (1 - beta2) * curvature + (1 - beta2) ** 2 / 2 * (h - curvature) ** 2 / (h + delta)
        m = m - lr * (0.5 + delta) * (momentum / (1 - beta1**step) + delta * m) / (h + delta)
        assert np.allclose(w.detach(), m, rtol=1e-10)
        assert np.allclose(optimizer.std(w), (ess * (h + delta)) ** -0.5, rtol=1e-10)


@pytest.mark.parametrize("samples", [1, 3])
def test_on_a_gaussian_posterior_it_finds_the_mean_field_optimum(samples):
    """Mean exact, variance 1 / diag(precision): 300 copies of one quadratic in four correlated weights.

    The curvature estimate of one step spreads by less than 3 A_ii; averaged over 300 copies and at least 50
    independent stretches of the 1,000 last steps its error is below 0.03 A_ii, and the same for the mean's.
    """
    random = torch.Generator().manual_seed(0)
    root = torch.randn(4, 4, generator=random)
    A, target = root @ root.T / 4 + 0.5 * torch.eye(4), torch.tensor([1.0, -1, 0.5, 2])
    ess, delta = 50.0, 0.2
    w = nn.Parameter(torch.zeros(300, 4))
    optimizer = Ivon([w], lr=0.02, lr_factor=1.0, ess=ess, delta=delta, hessian=1.0, beta1=0.9, beta2=0.99)
    means, precisions = [], []
    for step in range(2000):
        losses = []
        optimizer.zero_grad()
        for _ in range(samples):
            off = optimizer.perturbed({"w": w}, random)["w"] - target
            losses.append(0.5 * torch.einsum("ni,ij,nj->", off, A, off))
        torch.stack(losses).mean().backward()
        optimizer.step()
        if step >= 1000:
            means.append(w.detach().mean(dim=0))
            precisions.append(optimizer.std(w).pow(-2).mean(dim=0))
    exact = torch.linalg.solve(A + delta * torch.eye(4), A @ target)
    assert torch.allclose(torch.stack(means).mean(dim=0), exact, atol=0.02)
    expected = ess * (A.diagonal() + delta)
    assert torch.allclose(torch.stack(precisions).mean(dim=0), expected, rtol=0.04)


def test_the_posterior_has_the_optimiser_s_width_and_a_colder_one_is_narrower(tmp_path):
    prepared = str(make_prepared(tmp_path / "data"))
    widths = {}
    for temperature in (1.0, 0.25):
        words = ["method.name=ivon", f"method.temperature={temperature}", "method.beta2=0.9"]
        run = load_run(None, [*TINY, *words], data=prepared)
        data = make_batches(run, load_task(run.data, run.task), torch.device("cpu"))
        posterior = ivon.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
        widths[temperature] = posterior.stds["conv1.weight"]
        images = next(data.rows(data.validation))[0][:2]
        probs = posterior.predict(images, 3, torch.Generator().manual_seed(0))
        assert (probs[0] != probs[1]).any()
    # The start is the same; h, which the data move, counts four times as much in the colder posterior.
    assert (widths[1.0] - 0.005).abs().max() > 1e-4
    assert not torch.equal(widths[1.0], widths[0.25])
