"""The data of the warm-up targets are what their hashes and descriptions say."""

from pathlib import Path

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.targets.data import load, standardised
from retinabench.fidelity.targets.registry import TARGETS
from retinabench.fidelity.targets.warm_up import read_banana


def test_the_training_points_of_the_banana_lie_on_its_ridge():
    train, test = standardised(load(TARGETS["banana"]))
    assert set(train[:, 1]) == {0.0}
    assert set(np.abs(train[:, 0])) == {1.0}  # whole numbers stay what they are
    assert test.max() == 4


def test_far_points_of_the_logistic_regression_lie_beyond_the_training_points():
    data = load(TARGETS["logistic"])
    far = data.test.inputs[data.test.groups == "far"]
    assert np.abs(far).max() == 4 * np.abs(data.test.inputs[data.test.groups == "near"]).max()
    assert np.abs(data.train.inputs).max() <= 2


def test_a_source_is_refused():
    with pytest.raises(InputError, match="come with the package"):
        read_banana(Path("data"))
