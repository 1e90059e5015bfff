"""Easy images that the tests of methods train on, and their runs."""

import pytest
import torch

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from support.helpers import make_prepared


@pytest.fixture(scope="package")
def prepared(tmp_path_factory):
    return str(make_prepared(tmp_path_factory.mktemp("data") / "prepared"))


@pytest.fixture
def opened(prepared):
    def open_run(*words):
        run = load_run(None, words, data=prepared)
        return run, make_batches(run, load_task(run.data, run.task), torch.device("cpu"))

    return open_run
