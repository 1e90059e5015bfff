"""The typed results of `score`, and their JSON."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import retinabench as rb
from metrics.test_shift import predictions
from support.score_names import CONTRACT


def test_the_json_contract():
    p = predictions()
    found = rb.score(p, bootstrap=40).to_dict()
    assert found == json.loads(json.dumps(found, allow_nan=False))
    assert found["schema"] == "retinabench.scores/1"
    assert found["rules"] == "corrected"
    assert found["uncertainty"] == "total"
    assert (found["bootstrap"], found["seed"]) == (40, 0)
    assert set(found["sets"]) == {"in_domain", "shifted", "joint", "balanced"}
    for name, part in found["sets"].items():
        assert {"images", "patients", "positives", "scores", "referral"} <= set(part)
        expected = [*CONTRACT, "ood_auroc", "ood_auprc"] if name == "joint" else CONTRACT
        assert list(part["scores"]) == expected
        for entry in part["scores"].values():
            assert {"value", "low", "high", "version"} <= set(entry)
        assert set(part["referral"]["auroc"]) == {"0", "0.5", "0.7"}
    near = found["sets"]["in_domain"]
    assert near["images"] == 240
    assert near["patients"] == 120
    assert near["scores"]["accuracy"]["low"] < near["scores"]["accuracy"]["value"]
    assert near["scores"]["accuracy"]["value"] < near["scores"]["accuracy"]["high"]


def test_any_metadata_is_valid_json():
    p = rb.Predictions(["a"], [1], [0.7], metadata={"lr": float("nan"), "when": np.float32(1), "x": object()})
    found = rb.score(p, bootstrap=0).to_dict()
    json.dumps(found, allow_nan=False)
    assert found["metadata"]["lr"] is None


def test_scores_by_attribute_and_by_name():
    found = rb.score(predictions(), bootstrap=20)
    one = found["shifted"]
    assert one.auroc is one["auroc"]
    assert one.auroc.value == found.value("auroc", "shifted")
    assert one.auroc.low <= one.auroc.value <= one.auroc.high
    assert list(found) == list(found.sets)
    assert {"auroc", "images"} <= set(dir(one))
    with pytest.raises(KeyError, match="auroc"):
        one["auroq"]
    with pytest.raises(AttributeError, match="auroq"):
        _ = one.auroq
    with pytest.raises(KeyError, match="in_domain"):
        found["indomain"]


def test_rows_have_the_labels_of_the_registry():
    rows = rb.score(predictions(), bootstrap=0).records()
    assert {row["set"] for row in rows} == {"In-domain", "Shifted", "Joint", "Balanced"}
    assert next(row for row in rows if row["score"] == "NLL")["direction"] == "lower"
    assert "AUROC" in rb.score(predictions(), bootstrap=0)._repr_html_()


def test_results_can_be_copied_and_pickled():
    found = rb.score(predictions(), bootstrap=0)
    assert pickle.loads(pickle.dumps(found)).to_dict() == copy.deepcopy(found).to_dict() == found.to_dict()
