"""Label shift: the likelihood by brute force, closed forms, and intervals that cover the prevalence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from retinabench.core.errors import InputError
from retinabench.metrics.calibration import correct_prior
from retinabench.metrics.guarantees.shift.label_shift import label_shift, likelihood_prevalence
from retinabench.metrics.guarantees.shift.weighted import Images


def sample(rng, patients, prevalence):
    """Two eyes; P(logit | label) is the same at every prevalence, with a share of the noise common to both eyes."""
    label = np.repeat(rng.random(patients) < prevalence, 2) ^ (rng.random(2 * patients) < 0.0)
    x = 2.0 * label - 1 + np.repeat(rng.normal(0, 0.7, patients), 2) + rng.normal(0, 0.7, 2 * patients)
    p = special.expit(2 * x)
    images = Images(p, 0.5 - np.abs(p - 0.5), np.repeat(np.arange(patients), 2), np.ones(len(p)))
    return images, label


def test_the_likelihood_prevalence_is_the_maximum_on_a_grid():
    rng = np.random.default_rng(0)
    prob, weight = rng.beta(1, 3, 200), rng.uniform(0.5, 1, 200)
    grid = np.linspace(0, 1, 20_001)
    terms = grid[:, None] * prob / 0.3 + (1 - grid[:, None]) * (1 - prob) / 0.7
    best = grid[np.argmax(np.log(terms) @ weight)]
    assert likelihood_prevalence(prob, 0.3, weight) == pytest.approx(best, abs=5e-5)
    assert likelihood_prevalence(np.full(9, 0.01), 0.5) == 0.0
    assert likelihood_prevalence(np.full(9, 0.99), 0.5) == 1.0


def test_the_likelihood_prevalence_is_the_fixed_point_of_em():
    prob = np.random.default_rng(1).beta(1, 2, 300)
    q = likelihood_prevalence(prob, 0.4)
    one, zero = q * prob / 0.4, (1 - q) * (1 - prob) / 0.6
    assert np.mean(one / (one + zero)) == pytest.approx(q, abs=1e-9)


def test_the_same_set_has_its_own_prevalence_and_risk():
    images, label = sample(np.random.default_rng(2), 400, 0.3)
    found = label_shift(images, label, images)
    assert found.prevalence.value == pytest.approx(label.mean())
    assert found.positive_weight == pytest.approx(1)
    wrong = label != (images.prob > 0.5)
    assert found.weights.risk(wrong, np.ones(len(wrong))).risk.value == pytest.approx(wrong.mean())


def test_prevalence_and_risk_are_covered_and_sensitivity_is_unchanged():
    """300 studies from prevalence 20 % to 50 %, seed 3: the standard error of a share of 5 % is 1.3 points."""
    rng = np.random.default_rng(3)
    many, truth = sample(rng, 300_000, 0.5)
    true_risk = np.mean(truth != (many.prob > 0.6))
    missed = {"prevalence": 0, "risk": 0}
    for _ in range(300):
        (old, label), (new, _) = sample(rng, 300, 0.2), sample(rng, 200, 0.5)
        found = label_shift(old, label, new)
        missed["prevalence"] += not found.prevalence.low <= 0.5 <= found.prevalence.high
        risk = found.weights.risk(label != (old.prob > 0.6), np.ones(len(label))).risk
        missed["risk"] += not risk.low <= true_risk <= risk.high
    assert missed["prevalence"] / 300 <= 0.05 + 3 * 0.013
    assert missed["risk"] / 300 <= 0.05 + 3 * 0.013
    sensitivity = found.weights.risk(label & (old.prob <= 0.6), label).risk.value
    assert sensitivity == pytest.approx(np.mean(old.prob[label] <= 0.6))


def test_corrected_probabilities_have_the_new_prevalence():
    rng = np.random.default_rng(4)
    x = rng.normal(0, 1.5, 100_000)
    label = rng.random(len(x)) < special.expit(x)  # calibrated
    old = Images(special.expit(x), x, np.arange(len(x)), np.ones(len(x)))
    rows = np.concatenate([np.flatnonzero(label)[:5000], np.flatnonzero(~label)])
    new = Images(old.prob[rows], x[rows], np.arange(len(rows)), np.ones(len(rows)))
    found = label_shift(old, label, new)
    assert found.prevalence.value == pytest.approx(label[rows].mean(), abs=0.015)  # standard error 0.004
    assert found.likelihood == pytest.approx(found.prevalence.value, abs=0.01)
    assert correct_prior(new.prob, found.positive_weight).mean() == pytest.approx(
        label[rows].mean(), abs=0.015
    )


def test_a_model_that_knows_nothing_and_one_class_are_refused():
    rng = np.random.default_rng(5)
    images = Images(rng.random(200), rng.random(200), np.arange(200), np.ones(200))
    found = label_shift(images, rng.random(200) < 0.3, images)
    assert found.weights is None
    assert np.isnan(found.positive_weight)
    assert "too little" in found.why
    with pytest.raises(InputError, match="both labels"):
        label_shift(images, np.zeros(200), images)
