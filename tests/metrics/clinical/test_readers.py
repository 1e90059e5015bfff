"""The model beside several readers."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.readers import beside_readers


def study(rng, readers=4, patients=150, spread=0.0, columns=None):
    """Patients with two referable images each; a reader's skill and a patient's difficulty add up on one scale."""
    difficulty = np.repeat(rng.normal(0, 0.7, patients), 2)
    skill = 1.0 + spread * rng.normal(size=readers)
    noise = rng.normal(size=(readers, 2 * patients))
    calls = {f"reader_{j}": (skill[j] + difficulty + noise[j] > 0).astype(float) for j in range(readers)}
    prob = np.where(1.0 + difficulty + rng.normal(size=2 * patients) > 0, 0.9, 0.1)
    patient = np.repeat(np.arange(patients), 2)
    ids = [f"i{k}" for k in range(2 * patients)]
    part = rb.Predictions(
        ids, np.ones(2 * patients, int), prob, patient_id=patient.astype(str), subgroups=calls | (columns or {})
    )
    return part, beside_readers(part, prob > 0.5, patient)


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_the_interval_holds_for_other_readers_and_patients(spread):
    """The model is a reader of mean skill: the true difference from the mean reader is that of the probit means; 300 studies."""
    rng = np.random.default_rng(11)
    skill = rng.normal(1.0, spread, 200_000)
    many = (skill + rng.normal(0, 0.7, 200_000) + rng.normal(size=200_000) > 0).mean()
    one = (1.0 + rng.normal(0, 0.7, 200_000) + rng.normal(size=200_000) > 0).mean()
    found = [study(rng, spread=spread)[1]["sensitivity"].model_minus_mean for _ in range(300)]
    held = np.mean([each.low <= one - many <= each.high for each in found])
    assert 0.92 <= held <= 0.99


def test_with_equal_readers_the_variance_is_that_of_the_patients():
    calls = {"reader_a": [1.0, 0, 1, 1, 0, 1], "reader_b": [1.0, 0, 1, 1, 0, 1]}
    prob, patient = np.full(6, 0.9), np.arange(6)
    part = rb.Predictions(list("abcdef"), [1] * 6, prob, subgroups=calls)
    found = beside_readers(part, prob > 0.5, patient)["sensitivity"]
    right = np.array(calls["reader_a"])
    assert found.mean_reader.value == pytest.approx(right.mean())
    error = (found.model_minus_mean.high - found.model_minus_mean.value) / 1.959964
    assert error == pytest.approx(np.sqrt(right.var(ddof=1) / 6), rel=1e-4)


def test_images_that_a_reader_left_out_count_for_nobody():
    rng = np.random.default_rng(3)
    part, _ = study(rng, columns={"reader_z": np.where(np.arange(300) < 40, np.nan, 1.0)})
    found = beside_readers(part, part.prob > 0.5, np.arange(300))["sensitivity"]
    assert (found.images, found.readers["z"].value) == (260, 1.0)


def test_a_call_is_0_or_1():
    part = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.9], subgroups={"reader_a": [0.0, 1.0], "reader_b": [0.0, 3.0]})
    with pytest.raises(InputError, match=r"'3\.0' of image 'b' is no call of a reader"):
        beside_readers(part, part.prob > 0.5, np.arange(2))
