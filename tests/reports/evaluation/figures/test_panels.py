"""Panels of the page: what their captions and descriptions say, and what stands where nothing can be drawn."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluate import evaluate_methods
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.figures.panels import (
    histogram_panels,
    lead_panel,
    referral_panels,
    reliability_panels,
    roc_panels,
)


def evaluated(label, prob, **columns):
    file = Predictions([f"i{k}" for k in range(len(label))], label, prob, **columns)
    return evaluate_methods([MethodPredictions.of("m", file)], EvaluationSettings(bootstrap=0, referred=0.25))


@pytest.fixture(scope="module")
def found():
    """Of 40 images the 10 with probabilities nearest to one half are called wrongly, and a quarter is referred."""
    label = np.arange(40) % 2
    return evaluated(label, np.where(np.arange(40) < 10, 0.6 - 0.2 * label, 0.1 + 0.8 * label))


def test_a_set_of_one_class_has_no_roc_curve_and_says_so():
    [panel] = roc_panels(evaluated(np.ones(20, int), np.linspace(0.1, 0.9, 20)))
    assert not panel.svg
    assert "images of one class only" in panel.caption


def test_the_caption_states_what_is_retained(found):
    [(heading, [panel]), *others] = referral_panels(found)
    assert heading == "Accuracy"
    assert [one for one, _ in others] == ["AUROC", "NLL, lower is better"]
    assert "accuracy 0.75 → 1" in panel.caption
    assert "referable 50 % → 50 %" in panel.caption
    assert "With 25 % referred: m 1" in panel.svg


def test_the_figure_beside_the_verdict_is_of_the_last_domain(found):
    panel = lead_panel(found)
    assert panel is not None
    assert panel.heading == "Referral of the most uncertain images"
    assert 'id="lead-figure"' in panel.svg


def test_histograms_and_reliability_describe_the_errors(found):
    [histogram], [reliability] = histogram_panels(found), reliability_panels(found)
    assert "in-domain: 10 of 40 incorrect" in histogram.svg
    assert "in-domain: predicted 0.50 on average, observed 0.50" in reliability.svg
