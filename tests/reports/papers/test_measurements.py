"""The numbers of one predictions file and their jackknife."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.predictions.table import Predictions
from retinabench.reports.papers.measurements import MeasureJob, measure

KEY = ("in_domain", "accuracy")
LOSS = ("in_domain", "nll")
BLOCKS = 50


def test_the_jackknife_of_accuracy_is_its_closed_form():
    """With one patient per block left out of 50 the variance is exactly s^2 / n."""
    rng = np.random.default_rng(4)
    label, prob = rng.integers(0, 2, 50), rng.random(50)
    test = Predictions(np.arange(50).astype(str), label, prob, uncertainty=rng.random(50))
    found = measure(MeasureJob(test, "corrected", 0, 0))
    left_out = found.jackknife[KEY]
    variance = 49 / 50 * np.sum((left_out - left_out.mean()) ** 2)
    hit = (prob > 0.5) == label
    assert variance == pytest.approx(hit.var(ddof=1) / 50, rel=1e-9)
