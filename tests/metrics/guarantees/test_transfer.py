import json
from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from conftest import shared_path
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
        [f"i{k}" for k in range(len(label))], label, prob, patient_id=patient,
        split=np.repeat(["validation", "test", "test"], sizes),
        domain=np.repeat(["in_domain", "in_domain", "shifted"], sizes),
    )  # fmt: skip


def test_transfer_reports_what_a_frozen_threshold_does():
    predictions = study()
    found = transfer(predictions, "selective_risk", 0.1, delta=0.1, bootstrap=50)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["schema"] == "retinabench.transfer/3"
    assert content["per"] == "image"
    assert set(content["sets"]) == {"validation", "in_domain", "shifted"}
    assert content["sets"]["in_domain"]["guarantee"] != "broken"
    assert content["sets"]["shifted"]["guarantee"] == "broken"
    assert found.broken == ("shifted",)
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
        missed = (part.label == 1) & (part.prob <= 0.5) & kept
        assert one["missed_referable"] == {"images": int(missed.sum()), "of": int(part.label.sum())}
        assert one["targets"]["sensitivity"]["value"] == pytest.approx(1 - missed.sum() / part.label.sum())
    plain = transfer(predictions, "referral_rate", 0.2, bootstrap=20)
    assert plain.to_dict()["sets"]["in_domain"]["guarantee"] == "none"
    assert plain.choice.referral_rate <= 0.2
    assert transfer(predictions, "accuracy", 0.9, delta=0.1, bootstrap=20).threshold == found.threshold
    assert transfer(predictions, "selective_risk", 0.1, delta=0.1, bootstrap=20, seed=5).threshold == found.threshold


def test_a_decision_threshold_and_several_goals():
    predictions = study(patients=(400, 100, 100))
    goals = ["sensitivity=.8", "npv=.85", "workload=.8"]
    found = transfer(predictions, goals=goals, delta=0.1, threshold=0.3, uncertainty="margin", bootstrap=20)
    assert found.certificate.granted
    assert [str(goal) for goal in found.goals] == ["sensitivity >= 0.8", "npv >= 0.85", "referral_rate <= 0.8"]
    one = found["in_domain"]
    assert [verdict.goal for verdict in one.verdicts] == pytest.approx([0.2, 0.15, 0.8])
    assert found.decision.value == 0.3
    plain = transfer(predictions, threshold="youden@validation", bootstrap=20)
    assert plain.decision.rule == "youden"
    with pytest.raises(InputError, match="chosen on the validation images"):
        transfer(predictions, threshold="youden@validation", delta=0.1)


def test_what_is_certified_is_what_is_printed_when_diseased_patients_have_more_images():
    predictions = rb.read_predictions(shared_path("cases", "informative.csv"))
    thresholds = {}
    for per in ("image", "patient-image"):
        found = transfer(predictions, "selective_risk", 0.05, delta=0.05, per=per, bootstrap=20)
        for one in found.sets.values():
            assert one.selective_risk.value <= 0.05
        assert found["in_domain"].guarantee != "broken"
        thresholds[per] = found.threshold
    assert thresholds["image"] < thresholds["patient-image"]  # images of diseased patients are harder


def test_labels_that_refute_a_certificate_are_heard():
    predictions = rb.read_predictions(shared_path("cases", "shift2.csv"))
    found = transfer(predictions, "selective_risk", 0.05, delta=0.05, bootstrap=20)
    assert found.broken == ("shifted",)
    assert found["in_domain"].guarantee == "not refuted"


def test_a_refused_column_is_named_with_its_file_and_what_to_do():
    split = ["validation", "validation", "validation", "test"]
    columns = {"split": split, "patient_id": ["p", "p", "q", "r"], "source": "a.csv"}
    p = rb.Predictions(list("abcd"), [0, 1, 1, 0], [0.1, 0.9, 0.6, 0.2], **columns)
    grade = r"a\.csv, column 'grade': is missing.* name it with --column grade=NAME"
    most = r"a\.csv, column 'patient_id': a patient has 2 images, more than 1\. Say --most-images 2 or more"
    with pytest.raises(InputError, match=grade):
        rb.transfer(p, goals=["severe_sensitivity=.9"])
    with pytest.raises(InputError, match=most):
        rb.transfer(p, goals=["selective_risk=.05"], delta=0.1, most_images=1)
    with pytest.raises(InputError, match=grade):
        rb.triage(p, ["severe_sensitivity=.9"])
    with pytest.raises(InputError, match=most):
        rb.triage(p, ["npv=.9"], delta=0.1, most_images=1)


def test_refused_transfers_say_why():
    predictions = study()
    found = transfer(predictions, "selective_risk", 0.0001, delta=0.1, bootstrap=20)
    assert found.refused
    assert found.sets == {}
    assert found.certificate.why
    assert found.to_dict()["certificate"]["why"] == found.certificate.why
    assert "too few" in found.certificate.why or "no lower" in found.certificate.why
    never = transfer(predictions, "selective_risk", 0.0, bootstrap=20)
    assert (never.threshold is None) == (never.choice.why is not None)


def test_a_refusal_without_any_evidence_is_quiet():
    """Few patients have 30 images: drawn studies with none of the evidence divided by it, and warned. Seed 45 is one of those."""
    rng = np.random.default_rng(45)
    images = np.where(rng.random(400) < 0.03, 30, 1)
    patient = np.repeat(np.arange(400), images)
    label, wrong = (rng.random(400) < 0.3)[patient], (rng.random(400) < 0.04)[patient]
    ids, split = np.arange(len(patient)).astype(str), np.where(patient % 2, "test", "validation")
    given = rb.Predictions(ids, label, np.where(label ^ wrong, 0.9, 0.1), patient_id=patient.astype(str), split=split)
    found = transfer(replace(given, uncertainty=rng.random(len(ids))), "selective_risk", 0.1, delta=0.1, bootstrap=20)
    assert found.certificate is not None
    assert not found.certificate.granted
