"""The trivial submissions."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.fidelity.scoring.baselines import baselines
from support.evaluators import ENERGY, FUNDUS


def test_trivial_submissions():
    probs = np.array([[0.6, 0.4, 0], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    chosen = FUNDUS.model_copy(update={"outputs": 3})
    constant, uniform, one_hot = (one.probs for one in baselines(chosen, probs))
    assert (constant == [1, 0, 0]).all()
    assert uniform == pytest.approx(1 / 3)
    assert (one_hot.argmax(axis=1) == [0, 0, 1]).all()
    marginal, point = (one.draws for one in baselines(ENERGY, np.array([[1.0, 3.0], [5.0, 5.0]])))
    assert (point[:, 0] == [2, 5]).all()
    assert marginal.shape == point.shape == (2, 1000)
