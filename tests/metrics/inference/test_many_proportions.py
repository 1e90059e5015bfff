"""Many proportions at once: each as `clustered_proportion` gives it alone, in every case that it tells apart."""

import numpy as np
import pytest

from retinabench.metrics.inference.many_proportions import (
    Sums,
    patient_starts,
    proportion_intervals,
    proportion_sums,
)
from retinabench.metrics.inference.proportions import clustered_proportion


@pytest.mark.parametrize("per_patient", [1, 3])
def test_each_is_that_of_one_alone(per_patient):
    rng = np.random.default_rng(0)
    n = 60
    codes = np.arange(n) // per_patient
    success = (rng.random((7, n)) < rng.uniform(0.05, 0.95, (7, 1))).astype(float)
    success[0], success[1], success[2, :] = 0, 1, 0.9 * success[2]
    weight = rng.random((7, n)) < 0.6
    weight[3], weight[4], weight[5] = False, codes == 2, codes < 2  # no image, one patient, two patients
    weight = np.where(np.arange(7)[:, None] == 6, rng.random(n), weight)
    one, other = (
        proportion_sums(success[k], weight[k], patient_starts(codes)) for k in (slice(3), slice(3, 7))
    )
    sums = Sums.joined([one, other])
    low, high = proportion_intervals(sums)
    for k in range(7):
        alone = clustered_proportion(success[k], weight[k], codes)
        found = (sums.value[k], low[k], high[k])
        assert found == pytest.approx((alone.value, alone.low, alone.high), rel=1e-12, nan_ok=True), k


def test_without_images_nothing_is_known():
    sums = proportion_sums(np.empty((2, 0)), np.empty(0), patient_starts(np.empty(0, np.intp)))
    assert np.isnan([sums.value, *proportion_intervals(sums)]).all()
