"""A study plan: its arithmetic by hand and its power in simulated studies."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.planning.assumptions import Assumptions
from retinabench.metrics.planning.clusters import Clusters
from retinabench.metrics.planning.plan import plan_study
from retinabench.metrics.planning.proportions import images_for_half_width
from retinabench.metrics.planning.study_plan import Aims
from retinabench.metrics.proportions import clustered_proportion


def test_patients_by_hand():
    found = plan_study(Assumptions(0.1, 0.9, 0.8, 0.9, Clusters(2, 0.5, 1.0)))
    positives = images_for_half_width(0.9, 0.05) * 1.5
    assert found["sensitivity"].images == math.ceil(positives / 0.1)
    assert found["sensitivity"].patients == math.ceil(found["sensitivity"].images / 2)
    negatives = images_for_half_width(0.8, 0.05) * 1.5
    assert found["specificity"].images == math.ceil(negatives / 0.9)
    assert found.patients == max(one.patients for one in found.requirements.values())
    assert found[found.decisive].patients == found.patients
    assert "sensitivity_above" not in found.requirements
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert "patients" in found._repr_html_()


def test_a_level_in_percent_is_refused():
    with pytest.raises(InputError, match="the level is 95"):
        plan_study(Assumptions(0.2, 0.95), Aims(level=95))


def test_a_study_of_the_planned_size_has_its_power():
    """Sensitivity 0.95 above 0.85 with power 0.8 of two correlated eyes (seed 0, 400 studies; standard error 2 points).

    The clustered interval estimates the design effect and uses t quantiles, so that the power is a few points lower or higher.
    """
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
