"""What a check is given."""

import pytest

from retinabench.core.errors import WorkError
from retinabench.experiments.config import load_run
from retinabench.experiments.conformance.subject import Subject, require
from retinabench.methods import map as method


def test_a_subject_names_its_method_and_a_users_network(tmp_path):
    subject = Subject(load_run(None, ["method=map"], data="d"), tmp_path)
    assert subject.method is method
    assert subject.network is None
    own = load_run(None, ["method=map", 'model.name="support.own_network:small"'], data="d")
    assert Subject(own, tmp_path).network == "support.own_network:small"


def test_a_requirement_that_is_not_met_is_an_error_of_the_work():
    require(True, "not shown")
    with pytest.raises(WorkError, match="the shape is wrong"):
        require(False, "the shape is wrong")
