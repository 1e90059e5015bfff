"""Batched curves against scikit-learn on the images that remain, and against counts of repeated images."""

import numpy as np
from sklearn import metrics

from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.batched.curves import referral_on_grid, sensitivity_on_grid
from retinabench.metrics.sorted_images import Cases

N = 80
SHARES = np.array([0.0, 0.25, 0.5])  # of 80 images whole numbers


def drawn(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, N), rng.uniform(0.05, 0.95, N), rng.permutation(N).astype(float), rng


def test_what_remains_scores_as_by_scikit_learn():
    y, p, u, _ = drawn(1)
    found = referral_on_grid(Batch(cases := Cases(y, p, u), np.ones((1, N))[:, cases.order]), SHARES, 0.05)
    for k, kept in enumerate([u < N * (1 - share) for share in SHARES]):
        assert np.isclose(found["accuracy"][0, k], metrics.accuracy_score(y[kept], p[kept] > 0.5), atol=1e-12)
        assert np.isclose(found["auroc"][0, k], metrics.roc_auc_score(y[kept], p[kept]), atol=1e-12)
        assert np.isclose(found["nll"][0, k], metrics.log_loss(y[kept], p[kept]), atol=1e-12)


def test_between_two_points_the_curve_is_linear_and_it_ends_where_few_remain():
    y, p, u, _ = drawn(2)
    batch = Batch(Cases(y, p, u), np.ones((1, N)))
    share = 1 - np.array([40.0, 40.25, 41.0, 10.0, 9.0]) / N
    values = referral_on_grid(batch, share, 0.05)["accuracy"][0]
    assert np.isclose(values[1], 0.75 * values[0] + 0.25 * values[2], atol=1e-12)
    assert np.isfinite(values[3])
    assert np.isnan(values[4])
    assert np.isnan(referral_on_grid(batch, np.array([0.5]), 0.6)["accuracy"]).all()


def test_a_weight_is_a_number_of_copies_with_ties_too():
    y, p, _, rng = drawn(3)
    u, p = rng.integers(0, 12, N).astype(float), np.round(p, 1)
    weight = rng.multinomial(N, np.full(N, 1 / N), 3).astype(float)
    cases = Cases(y, p, u)
    batch = Batch(cases, weight[:, cases.order])
    grid = np.linspace(0, 1, 23)
    found, roc = referral_on_grid(batch, grid, 0.05), sensitivity_on_grid(batch, grid)
    for row, one in enumerate(weight):
        copies = np.repeat(np.arange(N), one.astype(int))
        alone = Batch(Cases(y[copies], p[copies], u[copies]), np.ones((1, N)))
        for name, values in referral_on_grid(alone, grid, 0.05).items():
            np.testing.assert_allclose(found[name][row], values[0], atol=1e-10, err_msg=name)
        np.testing.assert_allclose(roc[row], sensitivity_on_grid(alone, grid)[0], atol=1e-12)


def test_the_sensitivity_within_a_rate_is_the_highest_of_scikit_learns_steps():
    y, p, u, _ = drawn(4)
    rates = np.linspace(0, 1, 13)
    false, hit, _ = metrics.roc_curve(y, p, drop_intermediate=False)
    expected = [hit[false <= rate + 1e-12].max() for rate in rates]
    cases = Cases(y, p, u)
    np.testing.assert_allclose(sensitivity_on_grid(Batch(cases, np.ones((1, N))), rates)[0], expected)


def test_without_a_class_there_is_no_sensitivity():
    cases = Cases(np.zeros(3), [0.1, 0.2, 0.3], [0, 1, 2])
    assert np.isnan(sensitivity_on_grid(Batch(cases, np.ones((1, 3))), np.array([0.5]))).all()
