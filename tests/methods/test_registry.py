"""The list of methods: every name is the one that its module states."""

import pytest

from retinabench.core.errors import InputError
from retinabench.methods.registry import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_name_under_which_it_is_listed(name):
    assert METHODS[name].Config.model_fields["name"].default == name


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown method 'labplace'.*'laplace'"):
        METHODS.find("labplace")
