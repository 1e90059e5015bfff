import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import retinabench as rb
from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.metrics.guarantees import sequence
from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.guarantees.transfer import resemblance, transfer


def eyes(rng, patients, camera=(1.0, 0.0)):
    """(label, call, uncertainty, patient): correlated eyes; a camera scales and shifts the model's logit."""
    severity = np.repeat(rng.normal(-0.8, 1.2, patients), 2) + rng.normal(0, 0.6, 2 * patients)
    y = rng.random(2 * patients) < 1 / (1 + np.exp(-2 * severity))
    z = camera[0] * (1.5 * severity + rng.normal(0, 0.6, 2 * patients)) + camera[1]
    p = 1 / (1 + np.exp(-z))
    return y, p > 0.5, np.round(0.5 - np.abs(p - 0.5), 3), np.repeat(np.arange(patients), 2)


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
    assert transfer(predictions, "accuracy", 0.9, delta=0.1, bootstrap=20, seed=5).threshold == found.threshold


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


def test_a_refusal_without_any_evidence_is_quiet(monkeypatch):
    """Few patients have 30 images: drawn studies with none of the evidence divided by it, and warned. Seed 45 is one of those."""
    monkeypatch.setattr(sequence, "ORDERS", (1, 1))  # the mean of eight orders is rarely 0
    monkeypatch.setattr(sequence, "MOST_NEEDED", 6000)
    rng = np.random.default_rng(45)
    images = np.where(rng.random(400) < 0.03, 30, 1)
    patient = np.repeat(np.arange(400), images)
    label, wrong = (rng.random(400) < 0.3)[patient], (rng.random(400) < 0.04)[patient]
    ids, split = np.arange(len(patient)).astype(str), np.where(patient % 2, "test", "validation")
    given = rb.Predictions(ids, label, np.where(label ^ wrong, 0.9, 0.1), patient_id=patient.astype(str), split=split)
    found = transfer(replace(given, uncertainty=rng.random(len(ids))), "selective_risk", 0.1, delta=0.1, bootstrap=20)
    assert found.certificate is not None
    assert not found.certificate.granted


def test_a_shift_is_flagged_and_its_absence_is_not():
    """400 pairs of 200 and 200 patients, level 5 %: SE of the share 1.1 %. The shifted camera, of 100, washes the images out."""
    alarms = {"same": 0, "camera": 0}
    for study in range(400):
        rng = np.random.default_rng([2, study])
        _, _, u, patient = eyes(rng, 200)
        for name, camera in (("same", (1.0, 0.0)), ("camera", (0.6, 0.3)))[: 2 if study < 100 else 1]:
            _, _, other, their = eyes(rng, 200, camera)
            alarms[name] += resemblance(u, patient, other, their, permutations=59, seed=study).alarm
    assert alarms["same"] / 400 <= 0.05 + 3 * 0.011
    assert alarms["camera"] >= 95


def test_the_guarantee_fails_under_the_shift_that_is_flagged():
    """What the alarm is for: on the shifted camera the certified threshold breaks its promise."""
    data = eyes(np.random.default_rng(5), 2000)
    certificate = certify(ReferralCases(*data, np.ones(len(data[0]))), [Goal("selective_risk", 0.05)], 0.1)
    y, said, u, patient = eyes(np.random.default_rng(6), 20_000, (0.6, 1.5))
    kept = u <= certificate.threshold
    assert np.mean((y != said)[kept]) > 0.06
    assert resemblance(data[2], data[3], u[:4000], patient[:4000]).alarm


def test_images_of_one_patient_would_break_the_level():
    """Permuting images instead of patients calls equal populations shifted too often; that is why patients move."""
    wrong = right = 0
    for study in range(300):
        rng = np.random.default_rng([3, study])
        u = [np.repeat(rng.normal(size=40), 6) + rng.normal(0, 0.1, 240) for _ in range(2)]
        patient = np.repeat(np.arange(40), 6)
        wrong += resemblance(u[0], None, u[1], None, permutations=39, seed=study).alarm
        right += resemblance(u[0], patient, u[1], patient, permutations=39, seed=study).alarm
    assert right / 300 <= 0.05 + 3 * 0.0126
    assert wrong / 300 > 0.15


def test_the_distance_is_that_of_kolmogorov_and_smirnov():
    rng = np.random.default_rng(4)
    a, b = rng.random(80).round(1), (rng.random(60) ** 1.3).round(1)
    assert resemblance(a, None, b, None, permutations=1).distance == pytest.approx(stats.ks_2samp(a, b).statistic)


def test_several_values_are_tested_at_one_level_and_a_change_of_any_is_seen():
    """400 pairs of 60 and 60 patients, seed 6: the standard error of a share of 5 % is 1.1 points. The prevalence changes, the
    uncertainty |p - 1/2| does not: the probability shows it."""
    false = alone = jointly = 0
    for study in range(400):
        rng = np.random.default_rng([6, study])
        p = rng.beta(0.5, 0.5, 120)
        values = np.column_stack([np.abs(p - 0.5), p])
        false += resemblance(values[:60], None, values[60:], None, permutations=39, seed=study).alarm
        if study < 40:
            more = np.where(rng.random(60) < 0.6, np.maximum(p[60:], 1 - p[60:]), p[60:])
            other = np.column_stack([np.abs(more - 0.5), more])
            alone += resemblance(values[:60, 0], None, other[:, 0], None, permutations=39, seed=study).alarm
            jointly += resemblance(values[:60], None, other, None, permutations=39, seed=study).alarm
    assert false / 400 <= 0.05 + 3 * 0.011
    assert alone < 8
    assert jointly > 20
