"""The definitions of the targets, and how the shipped images and features were made."""

import numpy as np

import fundus_arrays
import head_features
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


def test_a_target_of_a_plug_in_is_run_and_scored_like_any_other(tmp_path):
    TARGETS.add("line", regression_target().model_copy(update={"name": "line"}))
    try:
        target = TARGETS.find("line")
        file = run_entry("map", target, budget=2, out=tmp_path)
        found = read_submission(file, target, len(load(target).test))
        assert found.about.task == "line"
    finally:
        TARGETS.remove("line")


def test_drawing_anew_differs_by_a_grey_level_of_the_contrast_at_most():
    """Between processors the drawing may round differently (data/synthetic): the gain of 2 makes that 2, means 4."""
    plan, data = fundus_arrays.PLANS["fundus"], load(TARGETS["fundus"])
    chosen, following = fundus_arrays.choose(plan, "in_domain", plan.train, start=0)
    test, _ = fundus_arrays.choose(plan, "in_domain", plan.test, start=following)
    assert not {index // 2 for index in chosen} & {index // 2 for index in test}
    plain = fundus_arrays.draw_pooled(plan.seed, "in_domain", chosen[0])
    # The last kind, pixelation, of strength 3, begins at the 250 + 250 + 17 x 25th test point.
    damaged = fundus_arrays._corrupted((plan.seed, "pixelation", 3, test[17 * 25 % 250]))
    for drawn, shipped in ((plain, data.train.inputs[0]), (damaged, data.test.inputs[500 + 17 * 25])):
        assert abs(drawn.astype(int) - shipped).max() <= 4


def test_the_projection_knows_the_training_rows_alone():
    random = np.random.default_rng(0)
    features = (random.normal(size=(60, 12)) * np.arange(1, 13)).astype(np.float32)
    found = head_features.principal(features, 40)
    assert found.shape == (60, 8)
    assert np.allclose(found[:40].std(axis=0), 1, atol=1e-3)
    correlated = np.corrcoef(found[:40].T) - np.eye(8)
    assert np.abs(correlated).max() < 1e-2
    changed = features.copy()
    changed[40:] += 100
    assert np.array_equal(head_features.principal(changed, 40)[:40], found[:40])


def test_shipped_features_are_standardised_and_their_binary_classes_are_the_referable_grades():
    grades, binary = load(TARGETS["idrid-head"]), load(TARGETS["idrid-head-binary"])
    assert np.allclose(grades.train.inputs.std(axis=0), 1, atol=1e-3)
    assert np.array_equal(binary.train.targets, grades.train.targets >= 2)
    assert (len(grades.train), int((grades.test.groups == "in_domain").sum())) == (413, 103)
