"""The arrays of a reference know what they are."""

import numpy as np

from retinabench.fidelity.reference.arrays import ReferenceArrays


def test_the_number_of_chains_is_that_of_the_metadata():
    none = np.empty(0)
    found = ReferenceArrays({"chains": 4}, none, none, none, none, none)
    assert found.chains == 4
    assert not found.external
