"""The number of members is the number of samples."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run


def test_each_member_is_one_sample():
    def method(*words):
        return load_run(None, ["method.name=batch_ensemble", *words], data="d").method

    assert (method().members, method().samples) == (4, 4)
    assert (method("method.members=7").members, method("method.members=7").samples) == (7, 7)
    assert method("method.members=3", "method.samples=3").samples == 3
    with pytest.raises(InputError, match=r"samples \(5\) is not members \(4\).*Leave out samples"):
        method("method.samples=5")
