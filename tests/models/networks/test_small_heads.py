"""The transformed priors have the stated distributions, and the bent posterior its ridge."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student

from retinabench.models.build import build_published
from retinabench.models.networks.small_heads import student_2


def test_the_heavy_prior_is_student_s_t_by_quantiles():
    z = np.linspace(-6, 6, 101)
    # The survival function is used on both sides: 1 - p has no digits left at p near 1.
    quantiles = np.sign(z) * student.isf(norm.sf(np.abs(z)), 2)
    assert student_2(torch.from_numpy(z)).numpy() == pytest.approx(quantiles, rel=1e-9, abs=1e-12)
    far = torch.tensor([-8.0, 8.0], requires_grad=True)  # float32 keeps its gradient eight stds out
    student_2(far).sum().backward()
    assert torch.isfinite(far.grad).all()


def test_the_hierarchical_head_scales_all_of_its_weights():
    network = build_published("head-8-hierarchical", 0, 5)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    before = network(x)
    with torch.no_grad():
        network.log_scale.fill_(np.log(3))
    assert torch.allclose(network(x), 3 * before)
    assert sum(p.numel() for p in network.parameters()) == 46


def test_the_ridge_of_the_banana_is_bent():
    network = build_published("banana", 0, 2)
    on_the_ridge = torch.tensor([[2.0, 0.0]])
    for u, v in ((1.0, 0.0), (0.0, 1.0), (-3.0, 2.0)):
        with torch.no_grad():
            network.fc.weight.copy_(torch.tensor([[u], [v]]))
        assert network(on_the_ridge).tolist() == [[0.0, pytest.approx(2.0)]]
    assert network(torch.tensor([[0.0, 1.0]])).tolist() == [[0.0, pytest.approx(2.0)]]  # v
