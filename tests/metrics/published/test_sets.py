"""`score` under the published rules, against the released code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conftest import shared_path
from retinabench.metrics.published import scores as published
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
    np.testing.assert_array_equal(
        published.balanced_rows(z["out_joint_is_ood"], 1234), z["out_balanced_indices"]
    )
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
