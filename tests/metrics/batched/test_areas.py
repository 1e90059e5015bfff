"""Areas under referral curves against the mean over all counts of scikit-learn's scores of the retained."""

import warnings

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from retinabench.metrics.batched.areas import accuracy_area, auroc_area, average_precision, nll_area, points
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.selective.referral_curves import MIN_CLASS
from retinabench.metrics.sorted_images import Cases

N = 60


def ordered(seed=0):
    """Images without ties, from the most certain on, twice: as they are, and with whole-number weights by repetition."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, N), rng.random(N), np.arange(N) / N


def test_areas_are_means_over_the_retained_counts():
    y, p, u = ordered()
    batch = Batch(Cases(y, p, u), np.ones((1, N)))
    counts = range(1, N + 1)
    loss = -np.log(np.where(y == 1, p, 1 - p))
    assert np.isclose(accuracy_area(batch)[0], np.mean([((p > 0.5) == y)[:k].mean() for k in counts]))
    assert np.isclose(nll_area(batch)[0], np.mean([loss[:k].mean() for k in counts]))
    both = [k for k in counts if min(y[:k].sum(), k - y[:k].sum()) >= MIN_CLASS]
    assert np.isclose(auroc_area(batch)[0], np.mean([roc_auc_score(y[:k], p[:k]) for k in both]))
    at = points(batch)
    assert (at.enough[0].nonzero()[0] + 1).tolist() == both
    np.testing.assert_allclose(at.positive[0], np.cumsum(y))
    np.testing.assert_allclose(at.negative[0], np.cumsum(1 - y))


def test_average_precision_of_the_retained_blocks_and_of_a_part_of_one():
    y, p, u = ordered(1)
    cases = Cases(y, p, u)
    block = np.array([[3, 20, 40]])
    found = average_precision(Batch(cases, np.ones((1, N))), block, np.array([[1.0, 1.0, 0.5]]))[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [average_precision_score(y[: k + 1], p[: k + 1]) for k in (3, 20)]
        weight = np.append(np.ones(40), 0.5)
        expected.append(average_precision_score(y[:41], p[:41], sample_weight=weight))
    np.testing.assert_allclose(
        found, np.where(np.array([y[:4].sum(), 1, 1]) > 0, expected, np.nan), atol=1e-12
    )
