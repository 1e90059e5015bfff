"""The measures of closeness to a reference."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.fidelity import distances
from retinabench.fidelity.submissions.submission import Submission
from support.evaluators import FUNDUS, N, evaluator_of
from support.fake_reference import classified


def test_a_single_sample_has_no_epistemic_uncertainty():
    reference = classified(N, 5)
    submission = Submission(reference.probs, reference.probs[None])
    found = evaluator_of(FUNDUS, reference).grade(submission)["all"]
    assert np.isnan(found["epistemic_correlation"].value)
    truth = distances.epistemic(reference.samples)
    assert found["epistemic_error"].value == pytest.approx(truth.mean(), abs=1e-10)
    gap = distances.pairwise_disagreement(reference.samples).mean()
    assert found["disagreement_gap"].value == pytest.approx(gap)
