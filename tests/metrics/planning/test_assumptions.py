"""Assumptions of a study plan: what a pilot says, and values that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_threshold import ABOVE_HALF
from retinabench.metrics.planning.assumptions import Assumptions, Stated, from_pilot, stated_assumptions
from retinabench.metrics.planning.plan import plan_study


def test_a_pilot_gives_the_assumptions():
    rng = np.random.default_rng(4)
    n = 2000
    label = np.repeat(rng.random(n) < 0.3, 2)
    prob = 1 / (1 + np.exp(-(4 * label - 2 + np.repeat(rng.normal(size=n), 2) + rng.normal(size=2 * n))))
    pilot = rb.Predictions(np.arange(2 * n), label, prob, patient_id=np.repeat(np.arange(n), 2))
    found = from_pilot(pilot, ABOVE_HALF)
    assert found.prevalence == pytest.approx(label.mean())
    assert found.sensitivity == pytest.approx((prob[label] > 0.5).mean())
    assert found.clusters.images_per_patient == found.clusters.mates == 2
    assert found.clusters.disease_correlation == 1
    assert 0.1 < found.clusters.correlation < 0.6
    assert stated_assumptions(Stated(prevalence=0.05), pilot).prevalence == 0.05
    assert plan_study(found).notes[-1].startswith("assumptions from a pilot of 4,000 images")
    alone = from_pilot(rb.Predictions(np.arange(2 * n), label, prob), ABOVE_HALF)
    assert alone.clusters.effect == 1


def test_what_cannot_be_is_refused():
    for values in [
        {"prevalence": 0},
        {"prevalence": 0.1, "auroc": 1},
        {"prevalence": 0.1, "sensitivity": 1.1},
        {"prevalence": 0.1, "sensitivity": 0},
        {"prevalence": 0.1, "specificity": 1},
    ]:
        with pytest.raises(InputError):
            Assumptions(**values)
    with pytest.raises(InputError, match="both classes"):
        from_pilot(rb.Predictions(["a"], [0], [0.2]), ABOVE_HALF)


def test_a_pilot_without_an_error_is_no_plan_of_a_few_patients():
    label = np.repeat([0, 0, 0, 1], 25)
    perfect = rb.Predictions(np.arange(100), label, 0.1 + 0.8 * label)
    for stated, first in [
        ({}, "sensitivity is 1 .pilot of 100 images"),
        ({"sensitivity": 0.9}, "specificity is 1"),
        ({"sensitivity": 0.9, "specificity": 0.9}, "AUROC is 1"),
    ]:
        with pytest.raises(InputError, match=first):
            stated_assumptions(Stated(**stated), perfect)
    stated = {"sensitivity": 0.9, "specificity": 0.9, "auroc": 0.97}
    found = plan_study(stated_assumptions(Stated(**stated), perfect))
    assert found.assumptions.prevalence == 0.25
    assert found["net_benefit"].patients > 100
