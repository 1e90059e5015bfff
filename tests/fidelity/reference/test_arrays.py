"""The arrays of a reference know what they are."""

import numpy as np

from retinabench.fidelity.reference.arrays import ReferenceArrays


def test_the_number_of_chains_is_that_of_the_metadata():
    none = np.empty(0)
    found = ReferenceArrays({"chains": 4}, none, none, none, none, none)
    assert found.chains == 4
    assert not found.external


def test_what_the_metadata_do_not_state_is_none():
    none = np.empty(0)
    chains = {"chains": 4, "burn_in": 10, "kept": 20, "steps": 3, "published_ceiling": "x"}
    found = ReferenceArrays(chains, none, none, none, none, none)
    assert (found.chain_gradients, found.published_ceiling, found.accuracy) == (90, None, None)
    external = {"chains": 1, "kind": "external", "published_ceiling": {"agreement": 0.9}, "accuracy": 0.8}
    found = ReferenceArrays(external, none, none, none, none, none)
    assert found.external
    assert (found.chain_gradients, found.published_ceiling, found.accuracy) == (None, {"agreement": 0.9}, 0.8)
