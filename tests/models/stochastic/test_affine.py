"""The parts of linear layers and convolutions."""

from __future__ import annotations

import torch

from retinabench.models.stochastic.affine import fan_in


def test_he_s_fan_in_counts_the_inputs_of_one_output():
    assert fan_in(torch.nn.Conv2d(8, 6, 3, groups=2).weight) == 4 * 9
    assert fan_in(torch.nn.Linear(8, 6).weight) == 8
