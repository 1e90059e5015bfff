"""The arrays of a reference know what they are."""

import numpy as np

from retinabench.fidelity.reference.about import ReferenceAbout
from retinabench.fidelity.reference.arrays import ReferenceArrays


def test_the_number_of_chains_is_that_of_the_metadata():
    none = np.empty(0)
    about = ReferenceAbout(task="fundus", target="", data="", chains=4)
    found = ReferenceArrays(about, none, none, none, none, none)
    assert found.chains == 4
    assert not found.external
    found = ReferenceArrays(about.changed(kind="external"), none, none, none, none, none)
    assert found.external
