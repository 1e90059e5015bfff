"""The null band of the calibration error."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from retinabench.metrics.calibration import binned, null_bands
from retinabench.metrics.sorted_images import Cases


def test_null_band_holds_a_calibrated_model_and_not_an_overconfident_one():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, 3000)
    mean, low, high = null_bands.null_bands_of(Cases(0 * p, p).weighted(), replicates=300)["positive_class"]
    assert 0 < low < mean < high
    y = rng.random(3000) < p
    assert low < binned.reliability(y, p).expected_error() < high
    bent = expit(2 * logit(p))
    highest = null_bands.null_bands_of(Cases(0 * p, bent).weighted(), replicates=300)["positive_class"][2]
    assert binned.reliability(y, bent).expected_error() > highest


@pytest.mark.parametrize("patients", [300, 120])
def test_both_null_bands_at_once_are_those_of_each(patients, monkeypatch):
    rng = np.random.default_rng(3)
    p = rng.random(300)
    w = Cases(rng.random(300) < p, p, patient=np.arange(300) % patients).weighted()
    monkeypatch.setattr(null_bands, "BLOCK", 64)
    for of, band in null_bands.null_bands_of(w, replicates=20, seed=1).items():
        alone = null_bands._NullDraws(w, (of,), 1).errors(20)[:, 0]
        assert band == (alone.mean(), *np.quantile(alone, [(1 - 0.95) / 2, (1 + 0.95) / 2]))
    # Counts by bin are what sums of any weights give.
    one = null_bands._Forecast(w, "positive_class")
    assert one.number is not None
    draws = null_bands._NullDraws(w, ("positive_class",), 1)
    counted = draws.errors(5)
    draws.forecasts[0].number = None
    assert (draws.errors(5) == counted).all()
