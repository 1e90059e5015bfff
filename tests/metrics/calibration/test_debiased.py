"""The debiased calibration error: by brute force over pairs of patients, and the coverage of its interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from retinabench.metrics.calibration import debiased
from retinabench.metrics.calibration.debiased import calibration_error_interval, calibration_error_of
from retinabench.metrics.sorted_images import Cases

PATIENT = np.repeat(np.arange(100), 2)


def test_the_squared_error_is_a_sum_over_pairs_of_different_patients():
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = rng.random(200) < p**2
    residual, number = y - p, np.ceil(p * 15)
    square = 0.0
    for b in np.unique(number):
        rows = np.flatnonzero(number == b)
        pairs = [(i, j) for i in rows for j in rows if PATIENT[i] != PATIENT[j]]
        square += len(rows) / 200 * np.mean([residual[i] * residual[j] for i, j in pairs])
    found = calibration_error_of(Cases(y, p, patient=PATIENT).weighted())
    assert found == pytest.approx(np.sqrt(square), rel=1e-10)


@pytest.mark.parametrize(("tilt", "truth"), [(0.0, 0.0), (1.5, None)])
def test_the_interval_covers_with_correlated_eyes(tilt, truth):
    """100 studies of 100 patients (seed 1): the standard error of a coverage of 95 % is 2.2 points."""
    rng = np.random.default_rng(1)
    forecast = np.linspace(0.05, 0.95, 10)
    happens = expit(logit(forecast) + tilt)
    true = float(np.sqrt(np.mean((happens - forecast) ** 2))) if truth is None else truth
    held = begins = 0
    for _ in range(100):
        number = rng.integers(10, size=200)
        u = np.where(np.repeat(rng.random(100) < 0.5, 2), np.repeat(rng.random(100), 2), rng.random(200))
        w = Cases(u < happens[number], forecast[number], patient=PATIENT).weighted()
        low, high = calibration_error_interval(w)
        held, begins = held + (low - 1e-9 <= true <= high), begins + (low == 0)
    assert held >= 88
    assert begins >= 88 if tilt == 0 else begins == 0


def test_gaps_below_chance_give_an_interval_from_zero():
    """Half of the images of every forecast of one half are positive: no sample of independent images is so even."""
    low, high = calibration_error_interval(Cases(np.arange(400) % 2, np.full(400, 0.5)).weighted())
    assert low == 0
    assert 0.01 < high < 0.1


def test_a_single_patient_has_no_error():
    w = Cases([0, 1], [0.4, 0.4], patient=[0, 0]).weighted()
    assert np.isnan([calibration_error_of(w), *calibration_error_interval(w)]).all()


def test_patients_summed_in_parts_give_the_same_error(monkeypatch):
    rng = np.random.default_rng(5)
    p = rng.random(400)
    cases = Cases(rng.random(400) < p, p, patient=rng.integers(0, 150, 400))
    whole = [(calibration_error_of(w), *calibration_error_interval(w)) for w in [cases.weighted()]]
    monkeypatch.setattr(debiased, "PATIENTS", 32)
    parts = [(calibration_error_of(w), *calibration_error_interval(w)) for w in [cases.weighted()]]
    # Sums in another order: their last digits may differ.
    assert parts == pytest.approx(np.array(whole), rel=1e-12)
