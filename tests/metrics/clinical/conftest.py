import pytest

from support.shared_inputs import answers, table


@pytest.fixture
def data():
    return table("n400")


@pytest.fixture
def golden():
    return answers("own_outputs")
