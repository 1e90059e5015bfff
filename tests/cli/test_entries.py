"""`retinabench list`, without importing what it lists."""

import json
import subprocess
import sys
from typing import get_args

import pytest

from cli.test_main import NO_TORCH
from retinabench.cli.entries import Kind
from retinabench.cli.main import run
from retinabench.data.registry import DATASETS
from retinabench.methods.registry import METHODS
from retinabench.metrics.registry import SCORES


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_entries_with_a_line_each(kind, capsys):
    assert run(["list", kind, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found
    assert all(found.values()), found
    expected = {"methods": METHODS, "datasets": DATASETS, "scores": SCORES}
    assert set(expected.get(kind, ())) <= set(found)


def test_methods_are_listed_without_torch():
    code = f"{NO_TORCH}\nfrom retinabench.cli.main import run; sys.exit(run(['list', 'methods']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MC dropout" in done.stdout


def test_an_unknown_kind_is_one_line_with_all(capsys):
    assert run(["list", "method"]) == 2
    said = capsys.readouterr().err
    assert "targets" in said
    assert said.count("\n") == 1
