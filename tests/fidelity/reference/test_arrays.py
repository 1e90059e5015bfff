"""The content of a reference has types, and says no more than was stated."""

import numpy as np
import pytest
from pydantic import ValidationError

from retinabench.fidelity.reference.arrays import ReferenceAbout, ReferenceArrays

LEAST = {"task": "fundus", "target": "ab", "data": "cd", "chains": 4}


def test_the_number_of_chains_is_that_of_the_metadata():
    none = np.empty(0)
    about = ReferenceAbout(task="fundus", target="", data="", chains=4)
    found = ReferenceArrays(about, none, none, none, none, none)
    assert found.chains == 4
    assert not found.external
    found = ReferenceArrays(about.changed(kind="external"), none, none, none, none, none)
    assert found.external


def test_what_is_not_stated_is_not_written():
    assert ReferenceAbout(**LEAST).to_dict() == LEAST
    external = {**LEAST, "kind": "external", "published_ceiling": {"agreement": 0.9}, "accuracy": 0.8}
    assert ReferenceAbout(**external).to_dict() == external
    earlier = {**LEAST, "half_step": dict.fromkeys(["transitions", "acceptance_before", "acceptance"], 1.0)}
    earlier["half_step"] |= dict.fromkeys(["median_z", "beyond", "mean_difference"], 0.5)
    assert ReferenceAbout(**earlier).to_dict() == earlier


def test_gradients_of_a_chain_are_known_where_its_length_is():
    found = ReferenceAbout(**LEAST, burn_in=10, kept=20, steps=3)
    assert found.chain_gradients == 90
    assert ReferenceAbout(**LEAST, burn_in=10, kept=20).chain_gradients is None
    assert (found.kind, found.published_ceiling, found.accuracy) == ("sampled", None, None)


def test_a_copy_has_the_other_entries_and_the_original_stays():
    found = ReferenceAbout(**LEAST, remark="seen")
    assert found.changed(passed=True).to_dict() == {**LEAST, "remark": "seen", "passed": True}
    assert found.to_dict() == {**LEAST, "remark": "seen"}
    with pytest.raises(ValidationError):
        found.passed = True
