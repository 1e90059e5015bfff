import shutil

import pytest

from retinabench.experiments.search.search import search
from support.helpers import make_prepared
from support.searching import Serial, base_run, pretend, small_space


@pytest.fixture(scope="package")
def data(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("search") / "data")


@pytest.fixture(scope="package")
def begun(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("begun") / "sweep"
    engine = Serial(pretend)
    ranking = search(base_run(data), small_space(), trials=8, out=out, engine=engine)
    assert len(engine.computed) == 8
    return out, ranking


@pytest.fixture
def copy(begun, tmp_path):
    shutil.copytree(begun[0], tmp_path / "sweep")
    return tmp_path / "sweep"
