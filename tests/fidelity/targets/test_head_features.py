"""How the shipped features were made: the projection, the damaged images, and that no test image trains."""

import numpy as np

import head_features
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS


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
