"""Thresholds chosen on validation patients and what they do on others."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.transfer import transfer


def study(shift=(0.6, 1.5), patients=(600, 300, 300)):
    rng = np.random.default_rng(9)
    parts = []
    for k, (count, camera) in enumerate(zip(patients, ((1, 0), (1, 0), shift), strict=True)):
        severity = np.repeat(rng.normal(-0.8, 1.2, count), 2) + rng.normal(0, 0.6, 2 * count)
        y = rng.random(2 * count) < 1 / (1 + np.exp(-2 * severity))
        z = camera[0] * (1.5 * severity + rng.normal(0, 0.6, 2 * count)) + camera[1]
        parts.append((y, 1 / (1 + np.exp(-z)), np.repeat([f"{k}-{i}" for i in range(count)], 2)))
    label, prob, patient = (np.concatenate(column) for column in zip(*parts, strict=True))
    sizes = [2 * count for count in patients]
    return rb.Predictions(
        [f"i{k}" for k in range(len(label))],
        label,
        prob,
        patient_id=patient,
        split=np.repeat(["validation", "test", "test"], sizes),
        domain=np.repeat(["in_domain", "in_domain", "shifted"], sizes),
    )


def test_transfer_reports_what_a_frozen_threshold_does():
    predictions = study()
    found = transfer(predictions, "selective_risk", 0.1, delta=0.1, bootstrap=200)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["schema"] == "retinabench.transfer/1"
    assert set(content["sets"]) == {"validation", "in_domain", "shifted"}
    assert content["sets"]["in_domain"]["guarantee"] == "not refuted"
    assert content["sets"]["shifted"]["guarantee"] == "void"
    for name in ("in_domain", "shifted"):
        part = predictions.select(domain=name, split="test")
        u = -(part.prob * np.log(part.prob) + (1 - part.prob) * np.log(1 - part.prob))
        kept = u <= found.threshold
        one = content["sets"][name]
        assert one["referral_rate"]["value"] == pytest.approx(1 - kept.mean())
        wrong = ((part.prob > 0.5) != part.label)[kept].mean()
        assert one["selective_risk"]["value"] == pytest.approx(wrong)
        assert one["selective_risk"]["low"] < wrong < one["selective_risk"]["high"]
        assert one["readings"]["retained_only"]["accuracy"]["value"] == pytest.approx(1 - wrong)
    plain = transfer(predictions, "referral_rate", 0.2, bootstrap=20)
    assert plain.to_dict()["sets"]["in_domain"]["guarantee"] == "none"
    assert plain.choice.referral_rate <= 0.2
    assert transfer(predictions, "accuracy", 0.9, delta=0.1, bootstrap=20).threshold == found.threshold


def test_refused_transfers_say_why():
    predictions = study()
    found = transfer(predictions, "selective_risk", 0.0001, delta=0.1, bootstrap=20)
    assert found.threshold is None
    assert found.sets == {}
    assert found.notes[0].startswith("no guarantee: ")
    never = transfer(predictions, "selective_risk", 0.0, bootstrap=20)
    assert never.threshold is not None or never.notes[0].startswith("no threshold: ")
    with pytest.raises(InputError, match="cannot be guaranteed"):
        transfer(predictions, "sensitivity", 0.9, delta=0.1)
    with pytest.raises(InputError, match="Did you mean 'accuracy'"):
        transfer(predictions, "acuracy", 0.9)
    with pytest.raises(InputError, match="split = validation"):
        transfer(predictions.select(split="test"))
    with pytest.raises(InputError, match="test split"):
        transfer(predictions.select(split="validation"))
    leaking = predictions.patient_id.copy()
    leaking[1300] = leaking[0]
    both = rb.Predictions(
        predictions.image_id,
        predictions.label,
        predictions.probs,
        patient_id=leaking,
        split=predictions.split,
        domain=predictions.domain,
    )
    with pytest.raises(
        InputError, match="1 patients are in the validation and in the test split, such as '0-0'"
    ):
        transfer(both)
