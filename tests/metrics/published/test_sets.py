"""`score` under the published rules, against the released code."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from conftest import shared_path
from retinabench.metrics.published import scores as published
from retinabench.metrics.published.sets import EYEPACS_GRADES, balanced_rows, rebalanced_rows, score_sets
from retinabench.metrics.score import score
from retinabench.predictions.table import Predictions

CASES = ("n50", "n200_imbal10", "n500_ties", "n300_tail_one_class_correct", "n400_all_positive")

METRICS = ("accuracy", "nll", "auroc", "auprc")


def golden(name):
    return np.load(shared_path("golden", "retina", f"{name}.npz"))


def golden_json(name):
    return json.loads(shared_path("golden", "retina", f"{name}.json").read_text())


NAMES = {
    "negative_log_likelihood": "nll",
    "auroc": "auroc",
    "auprc": "auprc",
    "accuracy": "accuracy",
    "ece": "ece_top_label",
    "retention_accuracy_auc": "referral_accuracy_area",
    "retention_nll_auc": "referral_nll_area",
    "retention_auroc_auc": "referral_auroc_area",
    "retention_auprc_auc": "referral_auprc_area",
}


@pytest.mark.parametrize("case", CASES)
def test_scalars_through_score(case):
    z = golden(f"retention_{case}")
    truth = golden_json("eval_metrics_single")[case]["direct"]
    p = Predictions(
        np.arange(len(z["in_y_true"])).astype(str),
        z["in_y_true"],
        z["in_y_pred"],
        uncertainty=z["in_uncertainty"],
    )
    scores = score(p, rules="published").to_dict()["sets"]["in_domain"]["scores"]
    for theirs, ours in NAMES.items():
        expected, found = truth[f"{case}/{theirs}"], scores[ours]
        if expected is None:
            assert found["value"] is None
            assert found["why"]
        else:
            loose = case == "n500_ties" and ours in ("referral_auroc_area", "referral_auprc_area")
            tie = 2e-3 if case == "n500_ties" and ours.startswith("referral") else 1e-12
            assert found["value"] == pytest.approx(expected, abs=5e-3 if loose else tie), ours


@pytest.mark.parametrize("case", ["joint_equal", "joint_severity_like"])
def test_joint_and_balanced(case):
    z, truth = golden(case), golden_json(f"{case}_metrics")["direct"]
    near, far = len(z["in_id_y_true"]), len(z["in_ood_y_true"])
    np.testing.assert_array_equal(balanced_rows(z["out_joint_is_ood"], 1234), z["out_balanced_indices"])
    y, p, u = (z[f"out_joint_{name}"] for name in ("y_true", "y_pred", "entropy"))
    rows = z["out_balanced_indices"]
    order = None
    for metric in METRICS:
        r = rows if metric in ("accuracy", "nll") else np.arange(len(y))
        # copies of one image tie, but equal images give equal values whatever their order
        curve = published.referral_curve(y[r], p[r], u[r], metric, order=order)
        np.testing.assert_allclose(curve.value, z[f"out_balanced_{metric}"], atol=1e-12)
    # shuffled rows: the file's order of domains does not matter to `score`
    predictions = Predictions(
        np.arange(near + far).astype(str),
        y,
        p,
        uncertainty=u,
        domain=np.where(z["out_joint_is_ood"], "shifted", "in_domain"),
    )
    sets = score(predictions, rules="published", seed=1234).to_dict()["sets"]
    for theirs, ours in NAMES.items():
        assert sets["joint"]["scores"][ours]["value"] == pytest.approx(
            truth[f"joint_test/{theirs}"], abs=1e-12
        )
    for name in METRICS:
        assert sets["balanced"]["scores"][f"referral_{name}_area"]["value"] == pytest.approx(
            truth[f"joint_test/balanced_retention_{name}_auc"], abs=1e-12
        )
    for name in ("auroc", "auprc"):
        assert sets["joint"]["scores"][f"ood_{name}"]["value"] == pytest.approx(
            truth[f"joint_test/ood_detection_{name}"], abs=1e-12
        )


def test_every_set_by_the_functions_of_the_released_code():
    rng = np.random.default_rng(3)
    n = 60
    label, prob = rng.integers(0, 2, n), rng.random(n)
    far = np.arange(n) % 3 == 0
    p = Predictions([f"i{k}" for k in range(n)], label, prob, domain=np.where(far, "shifted", "in_domain"))
    values = prob * (1 - prob)
    found = score_sets(p, values, 5)
    assert list(found) == ["in_domain", "shifted", "joint", "balanced"]
    near = found["in_domain"]
    assert near.auroc.value == pytest.approx(roc_auc_score(label[~far], prob[~far]))
    assert near.accuracy.value == pytest.approx(np.mean((prob > 0.5)[~far] == label[~far]))
    assert found["joint"]["ood_auroc"].value == pytest.approx(roc_auc_score(far, values))
    order = np.concatenate([np.flatnonzero(~far), np.flatnonzero(far)])
    rows = order[balanced_rows(far[order], 5)]
    curve = published.referral_curve(label[rows], prob[rows], values[rows], "accuracy")
    assert found["balanced"]["referral_accuracy_area"].value == pytest.approx(curve.area)
    assert set(found["balanced"].scores) == {f"referral_{m}_area" for m in published.METRICS}


def test_one_class_has_no_auroc_and_says_so():
    p = Predictions(["a", "b"], [0, 0], [0.1, 0.2])
    entry = score_sets(p, np.array([0.1, 0.2]), 0)["in_domain"].auroc
    assert np.isnan(entry.value)
    assert entry.to_dict() == {
        "value": None,
        "low": None,
        "high": None,
        "version": 1,
        "why": "one class only",
    }


def test_rebalanced_aptos():
    z = golden("aptos_rebalanced")
    rows = rebalanced_rows(z["in_diagnosis"], 99, size=1000)
    assert len(rows) == 997
    for name in ("names", "y_true", "y_pred", "y_pred_entropy"):
        np.testing.assert_array_equal(z[f"in_{name}"][rows], z[f"out_{name}"])


def test_balanced_rows_hold_both_domains_equally_often():
    shifted = np.array([False] * 7 + [True] * 3)
    rows = balanced_rows(shifted, 0)
    assert rows[:7].tolist() == list(range(7))
    copies = np.bincount(rows[7:], minlength=10)[7:]
    assert copies.sum() == 7
    assert sorted(copies) == [2, 2, 3]  # two whole copies, and one image drawn without replacement
    np.testing.assert_array_equal(rows, balanced_rows(shifted, np.random.RandomState(0)))


def test_rebalanced_rows_have_the_proportions_of_eyepacs():
    grade = np.repeat([2, 0, 4, 1, 3], 10)
    rows = rebalanced_rows(grade, 0, size=1000)
    counts = np.bincount(grade[rows], minlength=5)
    assert counts.tolist() == [int(EYEPACS_GRADES[g] * 1000) for g in range(5)]
