"""Scores against the true labels."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.fidelity.scoring.utility import crps


def test_crps_by_pairs():
    random = np.random.default_rng(0)
    draws, y = random.normal(size=(6, 40)), random.normal(size=6)
    pairs = np.abs(draws[:, :, None] - draws[:, None, :]).mean(axis=(1, 2))
    assert crps(draws, y) == pytest.approx(np.abs(draws - y[:, None]).mean(axis=1) - pairs / 2)
