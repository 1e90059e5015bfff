import json
import math

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics import planning
from retinabench.metrics.image_sets import ABOVE_HALF
from retinabench.metrics.intervals import clustered_proportion
from retinabench.metrics.planning import Aims, Assumptions, Clusters, from_pilot, plan_study, stated_assumptions


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
    assert stated_assumptions({"prevalence": 0.05}, pilot=pilot).prevalence == 0.05
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
            stated_assumptions(stated, pilot=perfect)
    stated = {"sensitivity": 0.9, "specificity": 0.9, "auroc": 0.97}
    found = plan_study(stated_assumptions(stated, pilot=perfect))
    assert found.assumptions.prevalence == 0.25
    assert found["net_benefit"].patients > 100


def test_patients_by_hand():
    found = plan_study(Assumptions(0.1, 0.9, 0.8, 0.9, Clusters(2, 0.5, 1.0)))
    positives = planning.images_for_half_width(0.9, 0.05) * 1.5
    assert found["sensitivity"].images == math.ceil(positives / 0.1)
    assert found["sensitivity"].patients == math.ceil(found["sensitivity"].images / 2)
    negatives = planning.images_for_half_width(0.8, 0.05) * 1.5
    assert found["specificity"].images == math.ceil(negatives / 0.9)
    assert found.patients == max(one.patients for one in found.requirements.values())
    assert found[found.decisive].patients == found.patients
    assert "sensitivity_above" not in found.requirements
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert "patients" in found._repr_html_()


def test_a_study_of_the_planned_size_has_its_power():
    """Sensitivity 0.95 above 0.85 with power 0.8 of two correlated eyes (seed 0, 400 studies; standard error 2 points). The
    clustered interval estimates the design effect and uses t quantiles, so that the power is a few points lower or higher."""
    rng = np.random.default_rng(0)
    plan = plan_study(Assumptions(0.2, 0.95, clusters=Clusters(2, 0.5, 1.0)), Aims(above_sensitivity=0.85))
    patients = round(plan["sensitivity_above"].patients * 0.2)  # those who are diseased, in both eyes
    codes, every = np.repeat(np.arange(patients), 2), np.ones(2 * patients, bool)
    shown = 0
    for _ in range(400):
        chance = rng.beta(0.95, 0.05, patients)  # correlation 1 / (1 + 0.95 + 0.05) = 0.5
        hit = rng.random(2 * patients) < np.repeat(chance, 2)
        shown += clustered_proportion(hit, every, codes, exact=True).low > 0.85
    assert 0.7 < shown / 400 < 0.9


def test_co_primary_endpoints_are_both_shown_with_the_stated_power():
    """Independent images, half of them diseased, equal goals: each needs the square root of the power. Else the product reaches it."""
    alone = Clusters(images_per_patient=1, correlation=0, disease_correlation=0)
    given = Assumptions(prevalence=0.5, sensitivity=0.9, specificity=0.9, clusters=alone)
    found = plan_study(given, Aims(above_sensitivity=0.8, above_specificity=0.8))["both_above"]
    assert found.images == 2 * planning.images_for_power(0.9, 0.8, 0.8**0.5)
    given = Assumptions(prevalence=0.2, sensitivity=0.92, specificity=0.85, clusters=alone)
    plan = plan_study(given, Aims(above_sensitivity=0.85, above_specificity=0.8))
    both, single = plan["both_above"], (plan["sensitivity_above"], plan["specificity_above"])
    assert both.images >= max(one.images for one in single)
    n = both.images
    power = planning.exact_power([round(0.2 * n)], 0.92, 0.85) * planning.exact_power([round(0.8 * n)], 0.85, 0.8)
    assert power[0] >= 0.795  # the numbers of each class are rounded here
