"""The registry of scores."""

from __future__ import annotations

import pytest

import retinabench as rb
from retinabench.metrics.registry import SCORES
from retinabench.metrics.score_spec import ON_REQUEST, ScoreSpec
from retinabench.metrics.selective import referral_curves
from support.score_names import CONTRACT


def test_the_table_is_complete():
    assert {name for name, s in SCORES.items() if s.sets != ON_REQUEST} == {
        *CONTRACT,
        "ood_auroc",
        "ood_auprc",
    }
    for name, s in SCORES.items():
        assert s.name == name
        assert s.direction in ("higher", "lower") or s.sets == ON_REQUEST
        assert s.version >= 1
        assert s.label
    for metric in ("accuracy", "nll", "auroc", "auprc"):
        assert metric in referral_curves.METRICS


def test_labels_and_names_are_unique():
    assert len({s.label for s in SCORES.values()}) == len(SCORES)


def test_a_plug_in_score_is_in_scores_and_comparisons():
    """An entry point gives the registry such an entry; `add` does the same for this process."""
    spec = ScoreSpec("mean_prob", "Mean probability", "higher", "", 1, lambda w: w.mean(w.cases.prob))
    SCORES.add(spec.name, spec)
    try:
        model = rb.Predictions(["a", "b"], [0, 1], [0.2, 0.6])
        assert rb.score(model, bootstrap=0)["in_domain"].mean_prob.value == pytest.approx(0.4)
        found = rb.compare(model, model, bootstrap=0, scores=["mean_prob", "accuracy_at_50"])
        assert list(found["in_domain"].scores) == ["accuracy_at_50", "mean_prob"]
    finally:
        SCORES.remove(spec.name)
    assert "mean_prob" not in SCORES
