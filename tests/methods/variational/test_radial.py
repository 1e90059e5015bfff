"""The noise of the radial posterior."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.variational import radial


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def run(name, *words):
    return load_run(None, [f"method.name={name}", *words], data="d")


@pytest.mark.parametrize(("norm", "spread"), [("layer", 1.0), ("per_filter", math.sqrt(16 * 9))])
def test_radial_s_noise_is_normalised_as_the_option_says(norm, spread):
    settings = run(
        "radial", f"method.norm={norm}", "method.stddev_mean_init=1.0", "method.stddev_stddev_init=0.0"
    )
    model = radial.build(nn.Sequential(nn.Conv2d(16, 8, 3)), settings, Bernoulli()).model
    source = generator(1)
    norms = [float(model[0].family.noise(model[0].weight.shape, source).norm()) for _ in range(500)]
    # E|r| = sqrt(2 / π); relative standard error 3.4 % of 500.
    assert np.mean(norms) == pytest.approx(spread * math.sqrt(2 / math.pi), rel=0.14)
