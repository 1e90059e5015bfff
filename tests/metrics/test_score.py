"""`score`: its JSON, its sets, its intervals, and what it says of undefined numbers."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import retinabench as rb
from metrics.test_shift import predictions
from retinabench.core.errors import InputError


def test_controls_are_on_the_same_axes():
    part = rb.score(predictions(), bootstrap=0).to_dict()["sets"]["balanced"]
    random, oracle = part["controls"]["random"], part["controls"]["oracle"]
    accuracy, err = part["scores"]["accuracy"]["value"], 1 - part["scores"]["accuracy"]["value"]
    assert random["referral_accuracy_area"] == pytest.approx(accuracy, abs=1e-12)
    assert random["augrc"] == pytest.approx(err / 2, abs=1e-12)
    assert oracle["augrc"] == pytest.approx(err**2 / 2, abs=1e-12)
    assert random["aurc"] == pytest.approx(err, abs=1e-12)
    assert part["retained"]["0.5"]["positives"] + part["retained"]["0.5"]["negatives"] == pytest.approx(240)


def test_only_sets_that_exist():
    p = predictions()
    for domain in ("in_domain", "shifted"):
        assert set(rb.score(p.select(domain=domain), bootstrap=0).sets) == {domain}


def test_scores_are_of_the_test_split():
    p = predictions()
    split = np.where(np.arange(len(p)) % 3 == 0, "validation", "test")
    mixed = predictions(split=split)
    a = rb.score(mixed, bootstrap=10).to_dict()["sets"]
    b = rb.score(mixed.select(split="test"), bootstrap=10).to_dict()["sets"]
    for one in (one for found in (a, b) for name, one in found.items() if name != "balanced"):
        del one["baseline"]["corrected"]  # validation images correct the prior, where there are any
    assert a == b
    with pytest.raises(InputError, match="test split"):
        rb.score(mixed.select(split="validation"))


@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_every_number_is_found_again(rules):
    p = predictions()
    assert (
        rb.score(p, rules, bootstrap=20, seed=5).to_dict()
        == rb.score(p, rules, bootstrap=20, seed=5).to_dict()
    )


def test_row_order_never_matters():
    p = predictions()
    order = np.random.default_rng(0).permutation(len(p))
    a, b = rb.score(p, bootstrap=20).to_dict(), rb.score(p.take(order), bootstrap=20).to_dict()
    for name, part in a["sets"].items():
        for score_name, entry in part["scores"].items():
            other = b["sets"][name]["scores"][score_name]
            for key in ("value", "low", "high"):
                assert entry[key] == pytest.approx(other[key], abs=1e-12), (name, score_name, key)


def test_values_are_those_of_the_functions():
    p = predictions()
    near = p.select(domain="in_domain")
    found = rb.score(p, bootstrap=0)
    u = -np.round(np.abs(near.prob - 0.5), 9)  # the order of total entropy
    for metric in ("accuracy", "nll", "auroc", "auprc"):
        curve = rb.referral_curve(near.label, near.prob, u, metric)
        assert found.value(f"referral_{metric}_area") == pytest.approx(curve.area, abs=1e-12)
        assert found.to_dict()["sets"]["in_domain"]["referral"][metric]["0.5"] == pytest.approx(
            curve.at(0.5), abs=1e-12
        )


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


def test_one_image_is_enough():
    found = rb.score(rb.Predictions(["a"], [1], [0.7]), bootstrap=5).to_dict()
    assert found["sets"]["in_domain"]["scores"]["accuracy"]["value"] == 1
    json.dumps(found, allow_nan=False)


def test_notes_say_it_aloud():
    p = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.0, 1.0, 0.4])
    notes = " ".join(rb.score(p, bootstrap=0, uncertainty="epistemic").notes)
    assert "own cluster" in notes
    assert "epistemic" in notes
    assert "one sample" in notes
    assert "probability 0 or 1" in notes


def test_intervals_use_patients():
    """Both eyes of a patient alike: resampling images would be too sure by the square root of two."""
    rng = np.random.default_rng(0)
    n = 400
    y = np.repeat(rng.random(n // 2) < 0.4, 2)
    p = np.repeat(rng.random(n // 2), 2)
    base = {"image_id": [f"i{k}" for k in range(n)], "label": y, "probs": p}
    eyes = rb.score(rb.Predictions(**base), bootstrap=400).to_dict()["sets"]["in_domain"]["scores"][
        "accuracy"
    ]
    patients = rb.score(
        rb.Predictions(**base, patient_id=[f"p{k // 2}" for k in range(n)]), bootstrap=400
    ).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    ratio = (patients["high"] - patients["low"]) / (eyes["high"] - eyes["low"])
    assert ratio == pytest.approx(np.sqrt(2), abs=0.2)


def test_ece_has_a_reason_and_the_debiased_error_an_interval():
    rng = np.random.default_rng(5)
    prob = rng.random(400)
    found = rb.score(rb.Predictions(np.arange(400), rng.random(400) < prob, prob), bootstrap=5)["in_domain"]
    for of in ("top_label", "positive_class"):
        assert np.isnan(found[f"ece_{of}"].low)
        assert "debiased" in found[f"ece_{of}"].why
        values = [found.calibration[f"calibration_error_{of}{end}"] for end in ("_low", "", "_high")]
        assert values[0] == 0  # calibrated
        assert values == sorted(values)
    assert found.calibration["line_slope_low"] < 1 < found.calibration["line_slope_high"]


def test_scoring_needs_neither_torch_nor_scikit_learn():
    code = (
        "import sys, retinabench as rb; rb.score(rb.Predictions(['a', 'b'], [0, 1], [0.2, 0.7]), bootstrap=3);"
        "assert not {'torch', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_arguments():
    p = predictions()
    with pytest.raises(InputError, match="corrected"):
        rb.score(p, rules="correct")
    with pytest.raises(InputError, match="bootstrap"):
        rb.score(p, bootstrap=-1)
