"""Published points take the place of a target's test points."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.published_points import members, with_points
from retinabench.fidelity.targets.target import TARGETS


def test_published_points_have_no_labels_and_leave_the_training_points(tmp_path):
    target = TARGETS["logistic"]
    data = load(target)
    inputs = np.ones((3, 2), np.float32)
    np.savez(tmp_path / "points.npz", inputs=inputs, group=np.full(3, "far"))
    found = with_points(target, data, tmp_path / "points.npz")
    assert np.array_equal(found.test.inputs, inputs)
    assert not found.test.targets.any()
    assert found.train is data.train
    assert found.sha256 != data.sha256


def test_an_absent_array_is_named(tmp_path):
    np.savez(tmp_path / "points.npz", inputs=np.ones(3))
    with pytest.raises(InputError, match="holds no array 'group'"):
        members(tmp_path / "points.npz", ("inputs", "group"))
