"""Average precision beyond the work limit marks what is exact."""

from __future__ import annotations

import numpy as np

from retinabench.metrics.score import referral_curve
from support.shared_inputs import big


def test_auprc_beyond_the_work_limit_marks_what_is_exact(monkeypatch):
    y, p, rng = big(3000)
    u = rng.random(3000)
    truth = referral_curve(y, p, u, "auprc").value
    monkeypatch.setattr("retinabench.metrics.selective.incremental_precision.WORK", 1)
    curve = referral_curve(y, p, u, "auprc")
    assert curve.exact.sum() == 1000
    np.testing.assert_allclose(curve.value[curve.exact], truth[curve.exact], atol=1e-12)
