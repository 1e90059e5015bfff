"""Paired comparison: alignment, the paired draws by brute force, Holm against its procedure, ranks against counting."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.comparison.compare import compare
from retinabench.metrics.inference.auroc_variance import auroc_difference
from support.paired_models import models

FAST = ("accuracy", "auroc", "nll", "referral_accuracy_area")


def test_the_interval_agrees_with_the_closed_form():
    """2,000 draws: an end of the interval has a Monte Carlo SE of about 6 % of the standard error."""
    a, b = models(1, patients=400, quality=(1.2, 1.0))
    entry = compare(a, b, bootstrap=2000, scores=["auroc"]).to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    closed = auroc_difference(a.label, a.prob, b.prob, a.patient_id)
    low, high = closed.interval()
    assert entry["low"] == pytest.approx(low, abs=0.25 * closed.standard_error)
    assert entry["high"] == pytest.approx(high, abs=0.25 * closed.standard_error)


def test_exchanging_the_models_changes_the_sign():
    a, b = models(3)
    one = compare(a, b, bootstrap=200, scores=FAST).to_dict()["sets"]["in_domain"]["scores"]
    two = compare(b, a, bootstrap=200, scores=FAST).to_dict()["sets"]["in_domain"]["scores"]
    for name in FAST:
        assert one[name]["difference"] == pytest.approx(-two[name]["difference"], abs=1e-15)
        assert one[name]["low"] == pytest.approx(-two[name]["high"], abs=1e-12)
        assert one[name]["p"] == two[name]["p"]
    assert one["auroc"]["better"] == "a"
    assert two["auroc"]["better"] == "b"
    assert one["nll"]["difference"] < 0  # lower is better: a still wins
    assert one["nll"]["better"] == "a"


def test_a_model_equals_itself():
    (a,) = models(4, quality=(1.0,))
    for entry in compare(a, a, bootstrap=50, scores=FAST).to_dict()["sets"]["in_domain"]["scores"].values():
        assert (entry["difference"], entry["p"]) == (0, 1)
        assert entry["low"] is entry["high"] is None or entry["low"] < 0 < entry["high"]
        assert entry["better"] is None


def test_all_scores_on_all_sets():
    a, b = models(5, domains=True)
    found = compare(a, b, bootstrap=30)
    assert set(found.sets) == {"in_domain", "shifted", "joint", "balanced"}
    assert {"ood_auroc", "ood_auprc"} < set(found.to_dict()["sets"]["joint"]["scores"])
    values = rb.score(a, bootstrap=0)
    for name, one in found.to_dict()["sets"].items():
        assert one["patients"] == len(np.unique(a.patient_id)) // (1 if name in ("joint", "balanced") else 2)
        for score, entry in one["scores"].items():
            assert entry["a"] == pytest.approx(values.value(score, name), abs=1e-12)
            assert entry["low"] <= entry["difference"] + 0.05
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["schema"] == "retinabench.comparison/1"
    only = compare(a, b, bootstrap=0, sets=["shifted"], scores=["auroc"])
    assert list(only.sets) == ["shifted"]
    assert only.to_dict()["sets"]["shifted"]["scores"]["auroc"]["low"] is None


def test_published_rules_have_values_only():
    a, b = models(6, domains=True)
    found = compare(a, b, rules="published")
    entry = found.to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry["difference"] == pytest.approx(entry["a"] - entry["b"])
    assert "no intervals" in found.notes[-1]
    corrected = compare(a, b, bootstrap=0).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry.keys() == corrected.keys()
    with pytest.raises(InputError, match="Did you mean 'auroc'"):
        compare(a, b, rules="published", scores=["aurok"])
    for replicates in (0, 20):
        with pytest.raises(InputError, match="the level is 95"):
            compare(a, b, bootstrap=replicates, level=95)


def test_published_rules_order_the_referral_as_the_released_code_does():
    """p and 1 - p differ in the last bit there: rounding them to ties, as the corrected rules do, is another order."""
    rng = np.random.default_rng(0)
    p = np.repeat(rng.random(100), 2)
    p[1::2] = 1 - p[1::2]
    a = rb.Predictions([f"i{k}" for k in range(200)], rng.random(200) < p, p)
    score = rb.score(a, rules="published")
    for name, entry in compare(a, a, rules="published").to_dict()["sets"]["in_domain"]["scores"].items():
        assert entry["a"] == entry["b"] == score.value(name)


def test_published_one_class_says_why():
    a = rb.Predictions(["x", "y"], [0, 0], [0.1, 0.2])
    entry = compare(a, a, rules="published").to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    assert (entry["difference"], entry["why"]) == (None, "one class only")


def test_one_class_is_undefined_with_a_reason():
    a = rb.Predictions(["x", "y", "z"], [0, 0, 0], [0.1, 0.2, 0.9])
    b = rb.Predictions(["x", "y", "z"], [0, 0, 0], [0.1, 0.6, 0.9])
    scores = compare(a, b, bootstrap=100).to_dict()["sets"]["in_domain"]["scores"]
    assert scores["auroc"]["difference"] is None
    assert "a: needs both classes" in scores["auroc"]["why"]
    assert scores["accuracy"]["difference"] == pytest.approx(1 / 3)
    assert "every image is its own cluster" in compare(a, b, bootstrap=0).notes[0]
    one = rb.Predictions(["x"], [1], [0.3])
    alone = compare(one, one, bootstrap=5).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert (alone["difference"], alone["low"], alone["p"]) == (0, None, None)
    assert alone["why"] == "no interval: there is a single patient"
