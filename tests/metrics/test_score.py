"""`score`: its JSON, its sets, its intervals, and what it says of undefined numbers."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref

import numpy as np
import pytest

import retinabench as rb
from metrics.test_shift import predictions
from retinabench.core.errors import InputError
from retinabench.metrics import score as score_module
from retinabench.metrics.set_scores import scored_sets


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
    for level in (95, 0, 1, float("nan")):
        for rules in ("corrected", "published"):
            with pytest.raises(InputError, match=r"the level is .*such as 0\.95"):
                rb.score(p, rules, bootstrap=0, level=level)


def test_predictions_are_given_up_before_the_sets_are_scored(monkeypatch):
    """The ids of five million images take half a gigabyte; a caller that keeps no reference frees them."""
    held = [predictions()]
    kept = weakref.ref(held[0])
    alive = []

    def scored(*arguments):
        alive.append(kept() is not None)
        return scored_sets(*arguments)

    monkeypatch.setattr(score_module, "scored_sets", scored)
    rb.score(held.pop(), bootstrap=0)
    assert alive == [False]
