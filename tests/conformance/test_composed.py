"""Composed methods over every single one: deep ensembles, MultiSWAG, mixtures of IVON, tempered anything."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions

FAST = ("map", "dropout", "swag", "ddu")
SINGLE = [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
    for name, method in METHODS.items()
    if not is_composed(method)
]


@pytest.fixture
def predicted(trained):
    """Return the predictions of a run given in words; members are shared."""
    return lambda *words: read_predictions(trained(*words) / "predictions.parquet")


@pytest.mark.parametrize("name", SINGLE)
def test_an_ensemble_is_the_mixture_of_its_members(predicted, name):
    pooled = predicted("method.name=ensemble", "method.members=2", f"method.member.name={name}")
    members = [predicted(f"method.name={name}", f"seed={seed}") for seed in (0, 1)]
    assert pooled.metadata["members"] == 2
    assert np.array_equal(pooled.probs, np.concatenate([m.probs for m in members], axis=1))
    assert np.allclose(pooled.prob, (members[0].prob + members[1].prob) / 2, atol=1e-15)


@pytest.mark.parametrize("name", SINGLE)
def test_a_temperature_keeps_samples_and_order(predicted, name):
    tempered = predicted("method.name=temperature", f"method.member.name={name}")
    plain = predicted(f"method.name={name}")
    assert tempered.probs.shape == plain.probs.shape
    assert tempered.metadata["method"] == "temperature"
    for sample in range(plain.samples):
        order = np.argsort(plain.probs[:, sample], kind="stable")
        assert (np.diff(tempered.probs[order, sample]) >= 0).all()
