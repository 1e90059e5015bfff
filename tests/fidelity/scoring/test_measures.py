"""The measures of closeness to a reference."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retinabench.fidelity import distances
from retinabench.fidelity.scoring import measures
from retinabench.fidelity.submissions.submission import Submission
from support.evaluators import FUNDUS, N, evaluator_of
from support.fake_reference import classified, softmax


def value(measure):
    return float(measure.finish(measure.terms.mean(axis=0)))


def test_a_single_sample_has_no_epistemic_uncertainty():
    reference = classified(N, 5)
    submission = Submission(reference.probs, reference.probs[None])
    found = evaluator_of(FUNDUS, reference).grade(submission)["all"]
    assert np.isnan(found["epistemic_correlation"].value)
    truth = distances.epistemic(reference.samples)
    assert found["epistemic_error"].value == pytest.approx(truth.mean(), abs=1e-10)
    gap = distances.pairwise_disagreement(reference.samples).mean()
    assert found["disagreement_gap"].value == pytest.approx(gap)


def test_miscalibration_against_the_reference():
    reference = softmax(np.random.default_rng(1).normal(size=(500, 4)))
    assert value(measures.miscalibration(reference, reference)) == 0
    # The uniform answer names class 0 with 1/4: its error is |1/4 - mean reference probability of class 0|.
    uniform = np.full_like(reference, 0.25)
    found = value(measures.miscalibration(uniform, reference))
    assert found == pytest.approx(abs(0.25 - reference[:, 0].mean()))


def test_regression_equals_the_competition_s_kit(shared):
    folder = shared("golden", "fidelity")
    arrays, values = (
        np.load(folder / "golden_metrics.npz"),
        json.loads((folder / "golden_metrics.json").read_text()),
    )
    cases = [name for name in values if name.startswith("reg_")]
    assert len(cases) == 6
    for case in cases:
        draws, reference = arrays[f"{case}__predictions"], arrays[f"{case}__reference"]
        found = measures.regression(draws, reference)
        assert value(found["w2_kit"]) == pytest.approx(values[case]["w2_distance"], abs=1e-12)
        if "OWN_paper_eq3_literal_sqrt_of_sum" in values[case]:
            literal = values[case]["OWN_paper_eq3_literal_sqrt_of_sum"]
            assert value(found["w2_as_printed"]) == pytest.approx(literal, abs=1e-10)


def test_the_two_w2_of_the_competition_by_sorting():
    random = np.random.default_rng(5)
    draws, reference = random.normal(size=(6, 1000)), random.normal(0.3, 2, size=(6, 1000))
    gaps = [
        [x - y for x, y in zip(sorted(a), sorted(b), strict=True)]
        for a, b in zip(draws.tolist(), reference.tolist(), strict=True)
    ]
    kit = -np.mean([np.mean(np.abs(of_point)) for of_point in gaps])
    printed = np.mean([np.sqrt(np.sum(np.square(of_point))) for of_point in gaps])
    found = measures.regression(draws, reference)
    assert value(found["w2_kit"]) == pytest.approx(kit, rel=1e-12)
    assert value(found["w2_as_printed"]) == pytest.approx(printed, rel=1e-12)
