"""The guided walk: the golden chains, and its stationary law."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from retinabench.methods.ensembles.sequential_anchored import guided_walk


@pytest.mark.parametrize(("case", "seed"), [("small", 2022), ("large", 2023)])
def test_the_golden_chain_step_by_step(shared, case, seed):
    """Its numbers come from NumPy's legacy generator: start, directions, then e and u of every step."""
    golden = np.load(shared("golden", "fidelity", "golden_guided_walk.npz"))
    deviation, step = float(golden[f"{case}_std"]), float(golden[f"{case}_step"])
    size = golden[f"{case}_x0"].shape
    random = np.random.RandomState(seed)
    assert np.array_equal(random.normal(0, deviation, size), golden[f"{case}_x0"])
    assert np.array_equal(random.choice([-1.0, 1.0], size=size), golden[f"{case}_dir0"])
    position, direction = (torch.from_numpy(golden[f"{case}_{name}0"]) for name in ("x", "dir"))
    for expected, towards in zip(golden[f"{case}_x"], golden[f"{case}_dir"], strict=True):
        noise, uniform = random.normal(0, step, size), random.uniform(0, 1, size)
        position, direction = guided_walk(
            position, direction, torch.from_numpy(noise), torch.from_numpy(uniform), deviation
        )
        assert np.array_equal(position, expected)
        assert np.array_equal(direction, towards)


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
