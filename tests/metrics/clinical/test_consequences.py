"""Missed disease and workload by hand: shares, ids in order, patients of whom nothing was seen, hours."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.metrics.clinical.consequences import missed_disease, workload


def test_missed_images_and_patients_by_hand():
    part = rb.Predictions(
        list("abcdefgh"), [1, 1, 1, 1, 1, 0, 0, 0], [0.9, 0.2, 0.1, 0.3, 0.05, 0.8, 0.1, 0.4],
        grade=[2, 2, 4, 3, 2, 0, 1, 0], patient_id=["p", "p", "q", "r", "s", "t", "u", "u"],
    )  # fmt: skip
    said = part.prob > 0.5
    sent = np.array([0, 0, 0, 1, 0, 0, 0, 1], bool)
    found = missed_disease(part, said, sent, part.prob)
    assert [(one.image_id, one.grade) for one in found.images] == [("c", 4), ("e", 2), ("b", 2)]
    assert [one.image_id for one in found.severe_images] == ["c"]
    assert found.patients == ("q", "s")  # of p the other eye is found, of r the eye is referred
    assert found.referable_patients == 4
    assert found.referable.value == 3 / 5
    assert found.severe.value == 1 / 2
    assert found.alone.value == 4 / 5
    assert found.caught.value == 1 / 4
    assert found.errors_caught.value == 1 / 5  # f is a false alarm that is retained
    assert found.to_dict()["images"][0]["patient_id"] == "q"


def test_nothing_missed_has_an_upper_bound():
    n = 40
    part = rb.Predictions(np.arange(2 * n), [0, 1] * n, [0.1, 0.9] * n, patient_id=np.repeat(np.arange(n), 2))
    found = missed_disease(part, part.prob > 0.5, np.zeros(2 * n, bool), part.prob)
    assert found.images == ()
    assert found.severe is None
    assert found.referable.value == 0
    assert found.referable.high == pytest.approx(
        1 - 0.025 ** (1 / n)
    )  # Clopper and Pearson, 0 of 40 patients
    assert np.isnan(found.caught.value)


def test_hours_by_hand():
    part = rb.Predictions(np.arange(8), [1, 1, 0, 0, 0, 0, 0, 1], [0.5] * 8, patient_id=list("aabbccdd"))
    found = workload(part, np.array([1, 1, 0, 0, 0, 0, 1, 0], bool), images_per_hour=30)
    assert found.images.value == 3 / 8
    assert found.patients.value == 2 / 4
    assert found.found.value == 2 / 3
    assert found.hours == 1000 * 2 * 3 / 8 / 30  # 1,000 patients have 2,000 images, of which 750 are read
    assert found.hours_reading_all == 2000 / 30
    assert found.images_per_expert_hour == 80
    assert found.patients_per_expert_hour == 40


def test_no_referral_costs_nothing():
    found = workload(rb.Predictions(["a", "b"], [0, 1], [0.1, 0.2]), np.zeros(2, bool), 60)
    assert found.hours == 0
    assert found.images_per_expert_hour == np.inf
    assert json.dumps(found.to_dict(), allow_nan=False)
