"""Groups of test points, and the bootstrap over them."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.fidelity import distances
from retinabench.fidelity.scoring.resampling import groups_of
from retinabench.fidelity.submissions.submission import Submission
from support.evaluators import FUNDUS, GROUP, N, evaluator_of
from support.fake_reference import classified


def test_groups_are_kinds_and_strengths():
    groups = groups_of(FUNDUS, GROUP)
    assert list(groups) == [
        "all",
        "in_domain",
        "shifted",
        "corrupted",
        *(f"corrupted {k}" for k in range(1, 6)),
    ]
    assert [len(rows) for rows in groups.values()] == [150, 60, 40, 50, 10, 10, 10, 10, 10]


def test_the_interval_of_a_mean_is_as_wide_as_its_standard_error():
    # 4,000 replicates: the interval's half width over 1.96 standard errors is 1 within some 5 %.
    reference = classified(N, 5)
    submission = Submission(classified(N, 5, seed=2).probs)
    estimate = evaluator_of(FUNDUS, reference, replicates=4000).grade(submission)["in_domain"][
        "total_variation"
    ]
    values = distances.total_variation(submission.probs, reference.probs)[:60]
    low, high = estimate.interval()
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / np.sqrt(60), rel=0.07)
