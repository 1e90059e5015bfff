"""The definitions of the targets."""

from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS
from support.tiny_target import regression_target


def test_the_fingerprint_follows_definition_and_data():
    known = TARGETS["fundus"]
    # Those of version 0.1, whose references and submissions stay valid.
    assert known.fingerprint("x") == "5c073383ddf9"
    assert TARGETS["energy-gap"].fingerprint("x") == "d925b2cf7c7c"
    assert TARGETS["cifar10"].fingerprint("x") == "58dd951a39f7"
    assert known.fingerprint("a") == known.fingerprint("a") != known.fingerprint("b")
    assert known.model_copy(update={"prior_variance": 0.06}).fingerprint("a") != known.fingerprint("a")


def test_the_fingerprint_leaves_out_what_does_not_affect_the_posterior():
    known = TARGETS["fundus"]
    other = known.model_copy(update={"decision": None, "read": "elsewhere:read"})
    assert other.fingerprint("a") == known.fingerprint("a")


def test_the_competition_counts():
    counts = {"dermamnist": 61_751, "cifar10": 1_488_202, "cifar10-resnet20frn": 274_042, "imdb": 2_700_098}
    counts |= {"energy-gap": 552}
    assert {name: TARGETS[name].parameters for name in counts} == counts


def test_a_target_of_a_plug_in_is_run_and_scored_like_any_other(tmp_path):
    TARGETS.add("line", regression_target().model_copy(update={"name": "line"}))
    try:
        target = TARGETS.find("line")
        file = run_entry("map", target, budget=2, out=tmp_path)
        found = read_submission(file, target, len(load(target).test))
        assert found.about.task == "line"
    finally:
        TARGETS.remove("line")
