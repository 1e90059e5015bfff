"""From options to a run: which word counts where several name the same setting, and pairs of options that exclude each other."""

import json
from pathlib import Path
from typing import get_args

import pytest

from retinabench.cli.entries import Kind
from retinabench.cli.main import run
from retinabench.cli.training import configured_run
from retinabench.data.registry import DATASETS
from retinabench.methods.registry import METHODS
from retinabench.metrics.registry import SCORES

DATA = Path("data")


def configured(overrides=(), *, method=None, seed=None, model=None, shifted=None, task=None, precision=None):
    return configured_run("demo/map", list(overrides), DATA, shifted, task, method, seed, precision, model)


def test_an_option_counts_before_the_preset_and_an_override_before_the_option():
    assert configured().method.name == "map"
    assert configured(method="dropout").method.name == "dropout"
    assert configured(["method.name=ivon"], method="dropout").method.name == "ivon"
    assert configured(model="lenet").model.name == "lenet"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_entries_with_a_line_each(kind, capsys):
    assert run(["list", kind, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found
    assert all(found.values()), found
    expected = {"methods": METHODS, "datasets": DATASETS, "scores": SCORES}
    assert set(expected.get(kind, ())) <= set(found)
