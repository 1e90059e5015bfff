import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from support.helpers import TINY, make_prepared


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    return str(make_prepared(tmp_path_factory.mktemp("data") / "prepared"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def trained(prepared, runs):
    def folder(*words):
        return execute(load_run(None, [*TINY, *words], data=prepared), runs, Resources("cpu"))

    return folder
