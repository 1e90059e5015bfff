"""The sine regression."""

from __future__ import annotations

import numpy as np

from retinabench.fidelity.targets.wave import read


def test_the_data_are_the_same_every_time_and_follow_the_sine():
    one, two = read(None), read(None)
    assert np.array_equal(one.inputs, two.inputs)
    noise = one.targets - np.sin(3 * one.inputs[:, 0])
    assert abs(noise.std() - 0.1) < 0.03  # 96 draws: the standard error is 0.007
    assert set(one.part("train").groups) == {"inside"}
