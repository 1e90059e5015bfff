"""Changes are paired by image, averaged over images, with intervals over patients."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.occlusion.effects import OccludedImage, effect_of


def answer(patient, before, occluded, controls, rendered=None):
    rows = [np.array([p, 0.5, np.nan]) for p in (before, occluded, *controls)]
    drawn = None if rendered is None else np.array([rendered, 0.5, np.nan])
    stack = np.stack(rows[2:]) if controls else np.empty((0, 3))
    return OccludedImage("i", patient, "x", 0.01, rows[0], rows[1], stack, drawn)


def test_changes_by_hand():
    answered = [
        answer("a", 0.9, 0.3, [0.8, 0.9], 0.2),
        answer("b", 0.6, 0.6, [0.6, 0.4], 0.6),
        answer("b", 0.2, 0.1, []),  # no control: left out
    ]
    found = effect_of("x", answered, replicates=200, seed=0)
    assert (found.images, found.patients, found.without_control) == (2, 2, 1)
    assert found.before == pytest.approx(0.75)
    assert found.probability["occluded"].value == pytest.approx(-0.3)
    assert found.probability["control"].value == pytest.approx(-0.075)
    assert found.probability["difference"].value == pytest.approx(-0.225)
    assert found.probability["rendered"].value == pytest.approx(-0.35)
    assert found.probability["error"].value == pytest.approx(0.05)
    assert found.probability["difference"].low == pytest.approx(-0.55)  # both replicates of patient a
    assert found.uncertainty["occluded"].value == 0
    assert found.epistemic is None
    assert (found.referred, found.reversed_occluded, found.reversed_control) == (2, 1, 0.5)


def test_without_a_control_nothing_is_known():
    found = effect_of("x", [answer("a", 0.9, 0.3, [])], replicates=200, seed=0)
    assert found.probability["difference"].to_dict()["value"] is None
    assert found.before is None


def test_intervals_over_patients_cover():
    """40 studies of 30 patients with two images each, whose effects agree within a patient: about 38 of them cover."""
    random = np.random.default_rng(0)
    covered = 0
    for study in range(40):
        shift = np.repeat(random.normal(-0.2, 0.1, 30), 2) + random.normal(0, 0.02, 60)
        answered = [answer(str(k // 2), 0.6, 0.6 + shift[k], [0.6]) for k in range(60)]
        change = effect_of("x", answered, replicates=100, seed=study).probability["difference"]
        covered += change.low <= -0.2 <= change.high
    assert covered >= 33  # 38 less three and a half standard errors of 1.4
