"""The clinic's numbers of a file: thresholds, notes and what is refused; `test_set_screening.py` has those of a set."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.screening_report import clinic
from support.screened import two_domains


def test_the_default_threshold_is_that_of_accuracy():
    given = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.5, 0.5, 0.6], patient_id=["p", "q", "q"])
    found = clinic(given).to_dict()["sets"]["in_domain"]
    assert found["images"]["tp"] == 1
    assert found["images"]["fp"] == 0
    assert (found["patients"]["tp"], found["patients"]["tn"]) == (1, 1)


def test_thresholds_are_chosen_on_validation_and_named():
    n = 300
    split = np.where(np.arange(n) % 3 == 0, "validation", "test")
    given = two_domains(domain=["in_domain"] * n, split=split, patient_id=None)
    found = clinic(given, "sensitivity=0.9@validation", referral_rate=0.2)
    part = given.select(split="validation")
    assert np.mean(part.prob[part.label == 1] >= found.threshold.value) >= 0.9
    assert (found.threshold.chosen_on, found.referral.chosen_on) == ("validation", "validation")
    assert any("sensitivity=0.9" in note for note in found.notes)
    assert any("no patient_id" in note for note in found.notes)
    own = clinic(given.select(split="test"), referral_rate=0.2)
    assert any("no validation split" in note for note in own.notes)


def test_one_class_and_one_row():
    found = clinic(rb.Predictions(["a"], [0], [0.2])).to_dict()["sets"]["in_domain"]
    assert json.dumps(found, allow_nan=False)
    assert found["images"]["sensitivity"]["value"] is None
    assert found["operating_points"]["nhs"]["sensitivity_at_specificity"]["sensitivity"] is None
    assert "patients" not in found
    with pytest.raises(InputError, match="test split"):
        clinic(rb.Predictions(["a"], [0], [0.2], split=["validation"]))


@pytest.mark.parametrize(
    "values", [{"referral_cost": -1}, {"images_per_hour": 0}, {"prevalences": [1.0]}, {"reader": (0.9, 1.2)}]
)
def test_what_cannot_be_is_refused(values):
    with pytest.raises(InputError):
        clinic(two_domains(), **values)
