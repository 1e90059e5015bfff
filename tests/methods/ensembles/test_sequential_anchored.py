"""Sequential anchored ensembles: the guided walk of the anchors, the schedule and the law of the members."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from retinabench.methods.ensembles import sequential_anchored
from retinabench.methods.ensembles.sequential_anchored import guided_walk
from support.linear_gaussian import PRIOR, fitted, make_run, truth, weights

LR = "optimizer.lr=0.8"  # the mean loss has curvatures near 1: 20 steps of plain gradient descent converge; an epoch has as many


@pytest.mark.parametrize(("case", "seed"), [("small", 2022), ("large", 2023)])
def test_the_recorded_chain_is_followed_step_by_step(shared, case, seed):
    """Its numbers come from NumPy's legacy generator: start, directions, then e and u of every step."""
    golden = np.load(shared("golden", "fidelity", "golden_guided_walk.npz"))
    std, step = float(golden[f"{case}_std"]), float(golden[f"{case}_step"])
    size = golden[f"{case}_x0"].shape
    random = np.random.RandomState(seed)
    assert np.array_equal(random.normal(0, std, size), golden[f"{case}_x0"])
    assert np.array_equal(random.choice([-1.0, 1.0], size=size), golden[f"{case}_dir0"])
    position, direction = (torch.from_numpy(golden[f"{case}_{name}0"]) for name in ("x", "dir"))
    for expected, towards in zip(golden[f"{case}_x"], golden[f"{case}_dir"], strict=True):
        noise, uniform = random.normal(0, step, size), random.uniform(0, 1, size)
        position, direction = guided_walk(
            position, direction, torch.from_numpy(noise), torch.from_numpy(uniform), std
        )
        assert np.array_equal(position, expected)
        assert np.array_equal(direction, towards)


def test_a_step_is_that_of_metropolis_coordinate_by_coordinate():
    random = np.random.default_rng(3)
    x, d = random.normal(size=50), random.choice([-1.0, 1.0], size=50)
    e, u, std = random.normal(size=50), random.random(50), 0.7
    position, direction = guided_walk(*(torch.from_numpy(value) for value in (x, d, e, u)), std)
    for k in range(50):
        proposal = x[k] + d[k] * abs(e[k])
        accepted = u[k] <= math.exp(-(proposal**2) / (2 * std**2)) / math.exp(-(x[k] ** 2) / (2 * std**2))
        assert float(position[k]) == pytest.approx(proposal if accepted else x[k])
        assert float(direction[k]) == (d[k] if accepted else -d[k])


def test_the_prior_is_its_stationary_law():
    """20,000 coordinates after 60 steps of size s / 2 from the prior: variance, fourth moment and direction, within 4 SE."""
    random, count, s = torch.Generator().manual_seed(0), 20_000, 0.3
    x = s * torch.randn(count, generator=random)
    start, d = x.clone(), torch.ones(count).where(torch.rand(count, generator=random) < 0.5, -torch.ones(1))
    for _ in range(60):
        e, u = s / 2 * torch.randn(count, generator=random), torch.rand(count, generator=random)
        x, d = guided_walk(x, d, e, u, s)
    z = (x / s).double()
    for moment, expected, variance in ((z, 0, 1), (z**2, 1, 2), (z**4, 3, 96), (d.double(), 0, 1)):
        assert abs(float(moment.mean()) - expected) < 4 * math.sqrt(variance / count)
    assert abs(np.corrcoef(start, x)[0, 1]) < 0.1  # and it has moved


@pytest.mark.parametrize("anchors", [pytest.param("prior", marks=pytest.mark.slow), "matched"])
def test_the_law_of_sequential_members(anchors):
    """100 members, each trained for 10 steps from the last one's weights: the law of fresh ones, within 4 standard errors.

    Matched: the noise is drawn anew for each member, and only the twentieth of the variance that the anchors bring is
    correlated along the chain: they count as 75. Prior: a walk of 1.5 deviations forgets in about 7 members: they count as
    15.
    """
    words = [LR, f"method.anchors={anchors}", "method.samples=100", "method.walk=1.5", "method.first=0.01"]
    posterior, batches = fitted(make_run("sequential_anchored", *words, epochs=50))
    members = weights(posterior)
    mean, covariance = truth(batches)
    count = 75 if anchors == "matched" else 15
    if anchors == "prior":
        covariance = covariance @ covariance / PRIOR**2
    spread = np.sqrt(covariance.diagonal())
    assert (abs(members.mean(axis=0) - mean) < 4 * spread / np.sqrt(count)).all()
    error = np.sqrt((np.outer(spread**2, spread**2) + covariance**2) / count)
    assert (abs(np.cov(members.T) - covariance) < 4 * error).all()


def test_every_member_has_its_own_cosine():
    run = make_run("sequential_anchored", "method.lr_factor=0.5", "optimizer.warmup=1")
    ends = [10, 14, 18]

    def rates(*steps):
        return [sequential_anchored.rate(step, 4, run, ends) for step in steps]

    assert rates(0, 2, 4, 7) == pytest.approx([0, 0.5, 1, 0.5])
    assert rates(10, 12, 14, 16) == pytest.approx([0.5, 0.25, 0.5, 0.25])
    assert rates(9)[0] < 0.07
    assert rates(17)[0] < 0.08
