"""`plan_study`: how many patients a study needs, for every question that is put to it, before any data or from a pilot.

>>> aims = Aims(half_width=0.05)
>>> plan_study(Assumptions(prevalence=0.2, sensitivity=0.9, specificity=0.9), aims)["sensitivity"].patients
593
"""

from __future__ import annotations

import math

import numpy as np

from retinabench.metrics.bootstrap import check_level
from retinabench.metrics.planning import auroc, proportions, validation
from retinabench.metrics.planning.assumptions import Assumptions
from retinabench.metrics.planning.study_plan import Aims, Requirement, StudyPlan


def plan_study(assumptions: Assumptions, aims: Aims | None = None) -> StudyPlan:
    """Return how many patients each question needs."""
    aims = Aims() if aims is None else aims
    check_level(aims.level)
    found = _of_rates(assumptions, aims) | _of_auroc(assumptions, aims) | _of_validation(assumptions)
    return StudyPlan(assumptions, aims, found, _notes(assumptions))


def _requirement(given: Assumptions, question: str, images: float, effect: float, source: str) -> Requirement:
    whole = math.ceil(images - 1e-9)
    patients = math.ceil(whole / given.clusters.images_per_patient - 1e-9)
    return Requirement(question, whole, patients, round(whole * given.prevalence), effect, source)


def _of_rates(given: Assumptions, aims: Aims) -> dict[str, Requirement]:
    q = given.prevalence
    of_class = {
        "sensitivity": (given.sensitivity, q, given.clusters.positive_effect(q), aims.above_sensitivity),
        "specificity": (given.specificity, 1 - q, given.clusters.negative_effect(q), aims.above_specificity),
    }
    found = {}
    for name, (expected, share, effect, above) in of_class.items():
        needed = proportions.images_for_half_width(expected, aims.half_width, aims.level)
        text = f"{name} of {expected:.2f} to within {aims.half_width:g}"
        source = "exact interval; Buderer 1996"
        found[name] = _requirement(given, text, needed * effect / share, effect, source)
        if above is not None:
            needed = proportions.images_for_power(expected, above, aims.power, aims.level)
            text = f"{name} of {expected:.2f} shown to be above {above:g} (power {aims.power:g})"
            found[f"{name}_above"] = _requirement(
                given, text, needed * effect / share, effect, "exact binomial test; Chernick and Liu 2002"
            )
    return found


def _of_auroc(given: Assumptions, aims: Aims) -> dict[str, Requirement]:
    q, clusters = given.prevalence, given.clusters
    needed = auroc.images_for_auroc(given.auroc, aims.half_width, q, clusters, aims.level)
    text = f"AUROC of {given.auroc:.3g} to within {aims.half_width:g}"
    source = "Obuchowski 1998, binormal"
    found = {"auroc": _requirement(given, text, needed, math.nan, source)}
    if aims.other_auroc is not None:
        pair = given.auroc, aims.other_auroc
        needed = auroc.images_for_difference(
            pair, aims.between, q, clusters, power=aims.power, level=aims.level
        )
        text = f"AUROC of {pair[0]:.3g} told from {pair[1]:.3g} on the same images (power {aims.power:g})"
        source = "Obuchowski and McClish 1997, binormal"
        found["auroc_difference"] = _requirement(given, text, needed, math.nan, source)
    return found


def _of_validation(given: Assumptions) -> dict[str, Requirement]:
    """The four criteria of Riley et al. at their usual widths, with the design effect of all images of a patient."""
    q, effect = given.prevalence, given.clusters.effect
    if given.predictors is None:
        points, weight = validation.calibrated_predictors(given.auroc, q)
    else:
        points, weight = given.predictors, np.ones(len(given.predictors))
    threshold = given.threshold
    if threshold is None or not 0 < threshold < 1:
        threshold, _ = validation.threshold_of_sensitivity(
            given.auroc, q, min(max(given.sensitivity, 0.01), 0.99)
        )
    benefit = validation.images_for_net_benefit(given.sensitivity, given.specificity, q, threshold)
    needed = {
        "observed_over_expected": (
            "observed over expected in an interval of width 0.2",
            validation.images_for_observed_over_expected(q),
        ),
        "calibration_slope": (
            "calibration slope in an interval of width 0.2",
            validation.images_for_calibration_slope(points, weight),
        ),
        "c_statistic": (
            "C-statistic (AUROC) in an interval of width 0.1",
            validation.images_for_c_statistic(given.auroc, q),
        ),
        "net_benefit": (
            f"standardised net benefit at {threshold:.2g} in an interval of width 0.2", benefit,
        ),
    }  # fmt: skip
    return {
        name: _requirement(given, text, images * effect, effect, "Riley et al. 2021")
        for name, (text, images) in needed.items()
    }


def _notes(given: Assumptions) -> tuple[str, ...]:
    m = given.clusters
    notes = [
        f"per image, {m.images_per_patient:.3g} images per patient; correlation within a patient: "
        f"{m.correlation:.2g} of being right, {m.disease_correlation:.2g} of the label",
        "for a study per patient (any eye), state sensitivity, specificity and prevalence per patient and 1 image per patient",
    ]
    if given.predictors is not None:
        notes.append(f"assumptions from a {given.origin}: they are estimates, and so are these numbers")
    return tuple(notes)
