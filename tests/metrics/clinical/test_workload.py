"""Workload by hand: images, patients, yield and hours."""

from __future__ import annotations

import json

import numpy as np

import retinabench as rb
from retinabench.metrics.clinical.workload import workload


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
