"""The scores of one set: values, intervals, and why some have none."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from metrics.test_shift import predictions


def test_controls_are_on_the_same_axes():
    part = rb.score(predictions(), bootstrap=0).to_dict()["sets"]["balanced"]
    random, oracle = part["controls"]["random"], part["controls"]["oracle"]
    accuracy, err = part["scores"]["accuracy"]["value"], 1 - part["scores"]["accuracy"]["value"]
    assert random["referral_accuracy_area"] == pytest.approx(accuracy, abs=1e-12)
    assert random["augrc"] == pytest.approx(err / 2, abs=1e-12)
    assert oracle["augrc"] == pytest.approx(err**2 / 2, abs=1e-12)
    assert random["aurc"] == pytest.approx(err, abs=1e-12)
    assert part["retained"]["0.5"]["positives"] + part["retained"]["0.5"]["negatives"] == pytest.approx(240)


def test_undefined_is_null_with_the_counts():
    p = predictions()
    severe = p.take(np.flatnonzero(p.label == 1))
    entry = rb.score(severe, bootstrap=10).to_dict()["sets"]["in_domain"]["scores"]
    assert entry["auroc"]["value"] is None
    assert "0 negative" in entry["auroc"]["why"]
    assert entry["referral_auroc_area"]["value"] is None
    assert "10 images" in entry["referral_auroc_area"]["why"]
    assert entry["specificity"]["value"] is None
    assert entry["accuracy"]["value"] == entry["sensitivity"]["value"]


def test_an_interval_of_a_rarely_defined_score_is_withheld():
    p = rb.Predictions(
        [f"i{k}" for k in range(20)], [1] + [0] * 19, np.linspace(0.9, 0.1, 20), uncertainty=np.arange(20)
    )
    entry = rb.score(p, bootstrap=200).to_dict()["sets"]["in_domain"]["scores"]
    assert entry["auroc"]["value"] == 1
    assert entry["auroc"]["low"] is None
    assert "single patient" in entry["auroc"]["why"]
    scores = rb.compare(p, p, bootstrap=200, scores=["auprc"])
    assert "5 %" in scores["in_domain"]["auprc"].why


def test_no_interval_is_without_width():
    """The hand-made cases of the audit: no error at all, hardly any positive, and every answer alike."""
    rng = np.random.default_rng(0)
    n, eyes = (
        120,
        {"image_id": [f"i{k}" for k in range(120)], "patient_id": [f"p{k // 2}" for k in range(120)]},
    )
    label = (np.arange(n) < 12).astype(int)
    cases = {
        "perfect": np.where(label == 1, 0.9, 0.1) + rng.uniform(-0.05, 0.05, n),
        "one of twelve": np.where(np.arange(n) == 0, 0.9, 0.1) + rng.uniform(-0.05, 0.05, n),
        "never": np.full(n, 0.1),
    }
    for name, prob in cases.items():
        scores = rb.score(rb.Predictions(**eyes, label=label, probs=prob), bootstrap=50)["in_domain"].scores
        for key, one in scores.items():
            if np.isfinite(one.low):
                assert one.low < one.high, (name, key)
                assert one.low <= one.value <= one.high, (name, key)
            else:
                assert one.why, (name, key)
        if name == "perfect":
            assert scores["sensitivity"].low == pytest.approx(0.025 ** (1 / 6))  # six diseased patients
            assert scores["accuracy"].low == pytest.approx(0.025 ** (1 / 60))
            assert scores["auroc"].low == pytest.approx(0.025 ** (1 / 6))


def test_a_single_patient_has_no_interval():
    p = rb.Predictions(["a", "b"], [1, 0], [0.7, 0.2], patient_id=["x", "x"])
    entry = rb.score(p, bootstrap=10).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry["value"] == 1
    assert entry["low"] is None
    assert "single patient" in entry["why"]


def test_ece_has_a_reason_and_the_debiased_error_an_interval():
    rng = np.random.default_rng(5)
    prob = rng.random(400)
    found = rb.score(rb.Predictions(np.arange(400), rng.random(400) < prob, prob), bootstrap=5)["in_domain"]
    for of in ("top_label", "positive_class"):
        assert np.isnan(found[f"ece_{of}"].low)
        assert "debiased" in found[f"ece_{of}"].why
        error = getattr(found.calibration, f"calibration_error_{of}")
        assert error.low == 0  # calibrated
        assert error.low <= error.value <= error.high
    assert found.calibration.line_slope.low < 1 < found.calibration.line_slope.high
