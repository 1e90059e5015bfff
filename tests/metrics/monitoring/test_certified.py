"""Certificates as JSON: what is read, what is refused, and what counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring.certified import read_certificate
from support.follow_ups import certificate, follow_up, predictions_of


def written(tmp_path, content):
    path = tmp_path / "transfer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_thresholds_goals_and_estimand_are_read(tmp_path):
    found = read_certificate(written(tmp_path, certificate(threshold="inf", per="patient-image")))
    assert found.threshold == np.inf
    assert found.goals == (Goal("selective_risk", 0.08), Goal("sensitivity", 0.8))
    assert (found.decision, found.uncertainty, found.per, found.most_images) == (
        0.5,
        "max_probability",
        "patient-image",
        2,
    )
    assert found.to_dict()["threshold"] == "inf"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "is no JSON file"),
        ({"schema": "retinabench.scores/1"}, "not the JSON of a certificate"),
        ("[1]", "not the JSON of a certificate"),
        (certificate(threshold=None), "holds no certified threshold"),
        (certificate() | {"certificate": None}, "holds no certified threshold"),
        (certificate(goals=()), "not a whole certificate"),
        (certificate(per="eye"), "not a whole certificate"),
        (certificate() | {"uncertainty": {}}, "not a whole certificate"),
        (certificate() | {"decision_threshold": {"value": 10**400}}, "not a whole certificate"),
        (
            {key: value for key, value in certificate().items() if key != "uncertainty"},
            "not a whole certificate",
        ),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_certificate(written(tmp_path, content))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_certificate(tmp_path / "none.json")


def test_only_known_labels_count(tmp_path):
    images = follow_up(np.random.default_rng(0), 100, unlabelled_from=180)
    found = read_certificate(written(tmp_path, certificate()))
    kept, called = images.uncertainty <= 0.2, images.prob > 0.5
    num, den = found.sums(Goal("selective_risk", 0.08), images)
    np.testing.assert_array_equal(den, kept & images.labelled)
    np.testing.assert_array_equal(num, kept & images.labelled & (called != images.label))
    num, den = found.sums(Goal("sensitivity", 0.8), images)
    np.testing.assert_array_equal(den, images.label)
    np.testing.assert_array_equal(num, images.label & kept & ~called)
    num, den = found.sums(Goal("workload", 0.3), images)
    assert den.all()
    np.testing.assert_array_equal(num, ~kept)


@pytest.mark.parametrize("per", ["image", "patient-image"])
def test_the_json_of_transfer_is_read(tmp_path, per):
    rng = np.random.default_rng(1)
    parts = [
        predictions_of(follow_up(rng, 300, name=name), split)
        for name, split in (("v", "validation"), ("t", "test"))
    ]
    both = rb.Predictions(
        *(np.concatenate([getattr(one, name) for one in parts]) for name in ("image_id", "label", "prob")),
        patient_id=np.concatenate([one.patient_id for one in parts]),
        split=np.concatenate([one.split for one in parts]),
    )
    made = rb.transfer(
        both, goals=["selective_risk=0.12", "sensitivity=0.6"], delta=0.1, per=per, bootstrap=20
    )
    found = read_certificate(written(tmp_path, made.to_dict()))
    assert (found.threshold, found.uncertainty, found.per) == (made.threshold, "total", per)
    assert [str(one) for one in found.goals] == ["selective_risk <= 0.12", "sensitivity >= 0.6"]
    assert found.most_images == 2
