"""Chains and seeds enter the replicates with their variances."""

import numpy as np
import pytest

from retinabench.fidelity.scoring import levels
from retinabench.fidelity.scoring.resampling import Estimate
from retinabench.fidelity.submissions.submission import Submission
from support.fake_reference import classified, regressed

R = 20_000  # the standard error of a variance of normal replicates is 1 %


def test_chains_add_the_jackknife_s_variance():
    reference = classified(50, 5)
    rows = {"all": np.arange(50)}
    probs = np.full((50, 5), 0.2)
    (changes,) = levels.chain_changes(Submission(probs), reference, rows).values()
    values = [
        np.abs(probs - np.delete(reference.chain_probs, k, axis=0).mean(axis=0)).sum(axis=1).mean() / 2
        for k in range(4)
    ]
    assert changes["total_variation"] == pytest.approx(values - np.mean(values))
    weights = levels.chain_weights(reference, "t", R, 0)
    found = levels.with_chains(Estimate(0.3, np.zeros(R)), changes["total_variation"], weights)
    assert found.draws.var() == pytest.approx(3 / 4 * np.sum((values - np.mean(values)) ** 2), rel=0.04)
    assert found.value == 0.3


def test_chains_of_a_regression_change_its_distance():
    reference = regressed(30)
    draws = np.random.default_rng(1).normal(size=(30, 1000))
    found = levels.chain_changes(Submission(draws=draws), reference, {"all": np.arange(30)})
    assert found["all"]["wasserstein"].shape == (4,)
    assert found["all"]["wasserstein"].sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [4, 10])
def test_intervals_over_seeds_are_those_of_student(count):
    values = np.random.default_rng(count).normal(size=count)
    shift = levels.seed_shifts({"x": values}, R, 0, "entry")["x"]
    error = values.std(ddof=1) / np.sqrt(count)
    wanted = {4: 3.182, 10: 2.262}[count]  # quantile .975 of Student's t with n - 1 degrees of freedom
    assert np.quantile(shift, 0.975) / error == pytest.approx(wanted, rel=0.05)
    assert levels.seed_shifts({"x": values[:1]}, R, 0, "entry") == {}


def test_an_infinite_score_of_one_seed_is_no_warning(recwarn):
    shifts = levels.seed_shifts({"nll": np.array([1.0, np.inf]), "x": np.array([1.0, 2.0])}, 5, 0, "entry")
    assert np.isnan(shifts["nll"]).all()
    assert np.isfinite(shifts["x"]).all()
    assert not recwarn.list
