"""Targets by name, of the package and of others."""

import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.registry import TARGETS
from support.tiny_target import regression_target


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(InputError, match=r"unknown fidelity target 'fundos'.*fundus"):
        TARGETS.find("fundos")


def test_every_target_is_named_as_in_the_registry():
    assert [target.name for target in TARGETS.values()] == list(TARGETS)


def test_a_target_of_a_plug_in_is_run_and_scored_like_any_other(tmp_path):
    TARGETS.add("line", regression_target().model_copy(update={"name": "line"}))
    try:
        target = TARGETS.find("line")
        file = run_entry("map", target, budget=2, out=tmp_path)
        found = read_submission(file, target, len(load(target).test))
        assert found.about.task == "line"
    finally:
        TARGETS.remove("line")
