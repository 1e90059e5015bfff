"""Degrees of freedom by hand, and no interval where few errors decide."""

from __future__ import annotations

import numpy as np

from retinabench.metrics.inference.interval_methods import FEW, Scaled, difference_method, patients_of
from retinabench.metrics.inference.scaled import replicate_error, scaled_interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sorted_images import Cases

# 20 patients with two images each, 10 patients per class, the surest first; patients 0, 1 and 19 have a wrong prediction.
PATIENT = np.repeat(np.arange(20), 2)
LABEL = PATIENT % 2
PROB = np.where(np.isin(PATIENT, (0, 1, 19)), 1 - LABEL, LABEL)
WEIGHTED = Cases(LABEL, PROB, np.arange(40), patient=PATIENT).weighted()


def test_patients_behind_a_standard_error_by_hand():
    assert patients_of(WEIGHTED) == 20
    assert patients_of(WEIGHTED, "classes") == 10
    assert (
        patients_of(WEIGHTED, "retained") == 5
    )  # half of the rarer class; 2 surely mistaken and 6 would be more
    assert patients_of(WEIGHTED, "errors") == 0  # three patients with an error are too few
    more = Cases(LABEL, 1 - PROB, np.arange(40), patient=PATIENT).weighted()
    assert patients_of(more, "errors") == 0
    half = Cases(LABEL, np.where(PATIENT < 8, 1 - LABEL, LABEL), np.arange(40), patient=PATIENT).weighted()
    assert patients_of(half, "errors") == 8


def test_few_replicates_lower_the_degrees_of_freedom():
    draws = np.array([0.79, 0.8, 0.81, 0.82])
    found = Scaled().ends([WEIGHTED], 0.8, draws, 0.95)
    assert found[:2] == scaled_interval(0.8, float(draws.std(ddof=1)), (-np.inf, np.inf), 3)


def test_areas_over_referral_are_decided_by_the_sure_mistakes():
    patient = np.repeat(np.arange(200), 2)
    label = patient % 2
    wrong = np.isin(patient, (3, 8, 190))
    w = Cases(label, np.where(wrong, 1 - label, label), np.arange(400), patient=patient).weighted()
    assert patients_of(w, "retained") == 2 + 5 + 1
    tied = Cases(label, np.where(wrong, 1 - label, label), patient=patient).weighted()
    assert patients_of(tied, "retained") == 5 + 1


def test_few_errors_give_no_interval_of_what_they_decide():
    draws = np.random.default_rng(0).normal(0.01, 0.001, 100)
    for name in ("rc_index", "e_aurc"):
        assert SCORES[name].interval.ends([WEIGHTED], 0.01, draws, 0.95).why == FEW["errors"]


def test_replicates_that_differ_by_rounding_are_equal():
    assert replicate_error(1 - 1e-16 * np.arange(50)) == 0
    assert replicate_error([0.0, 1e-6]) > 0


def test_a_difference_has_no_bounds_and_the_degrees_of_its_score():
    assert difference_method(SCORES["auprc"].interval) == Scaled(of="classes")
    assert difference_method(SCORES["accuracy"].interval) == Scaled(of="patients")
