from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss, log_loss

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.comparison import compare
from retinabench.metrics.paired import aggregate, mean_over_subsets
from retinabench.metrics.weighted_images import cluster_codes, replicate_weight
from retinabench.predictions.table import check_seeds, have_same_images
from support.paired_models import models

FAST = ("accuracy", "auroc", "nll", "referral_accuracy_area")


def test_draws_are_paired_and_equal_brute_force():
    a, b = models()
    found = compare(a, b, bootstrap=60, seed=3, scores=["brier", "nll"])
    codes, clusters = cluster_codes(a.patient_id)
    draws = []
    for r in range(60):
        w = replicate_weight(codes, clusters, 3, r)
        rows = np.repeat(np.arange(len(w)), w.astype(int))
        parts = [(m.label[rows], m.prob[rows]) for m in (a, b)]
        one, two = ([brier_score_loss(*part), log_loss(*part)] for part in parts)
        draws.append(np.subtract(one, two))
    scores = found.to_dict()["sets"]["in_domain"]["scores"]
    for name, column in zip(("brier", "nll"), np.array(draws).T, strict=True):
        entry, error = scores[name], column.std(ddof=1)
        assert entry["difference"] == pytest.approx(entry["a"] - entry["b"], abs=1e-15)
        assert entry["p"] == pytest.approx(2 * stats.t.sf(abs(entry["difference"]) / error, 59))
        half = stats.t.ppf(0.975, 59) * error
        ends = entry["difference"] - half, entry["difference"] + half
        np.testing.assert_allclose([entry["low"], entry["high"]], ends, atol=1e-12)


def test_order_of_rows_does_not_matter():
    a, b = models(2)
    order = np.random.default_rng(0).permutation(len(b))
    results = [compare(a, other, bootstrap=50, scores=FAST).to_dict()["sets"] for other in (b, b.take(order))]
    assert results[0] == results[1]


def test_other_images_or_labels_are_refused():
    a = rb.Predictions(["x", "y"], [0, 1], [0.1, 0.2], grade=[0, 2], patient_id=["p", "q"], source="a.csv")

    def other(**changes):
        given = {"image_id": ["y", "x"], "label": [1, 0], "probs": [0.5, 0.5], "source": "b.csv"}
        return rb.Predictions(**given | changes)

    assert compare(a, other(), bootstrap=0).to_dict()["sets"]["in_domain"]["images"] == 2
    for wrong, message in (
        (other(image_id=["y", "z"]), r"b\.csv: lacks 1 of the 2 images of a\.csv, such as 'x'"),
        (other(image_id=["y", "x", "w"], label=[1, 0, 0], probs=[0, 0, 0]), r"b\.csv: holds 1 images that a\.csv lacks, such as 'w'"),
        (other(label=[0, 0]), r"b\.csv, row 1, column 'label': is '0' for image 'y' where a\.csv has '1'"),
        (other(grade=[2, 1]), r"row 2, column 'grade'"),
        (other(patient_id=["q", "r"]), r"row 2, column 'patient_id': is 'r' for image 'x' where a\.csv has 'p'"),
        (other(domain=["shifted", "in_domain"]), r"row 1, column 'domain'"),
        (other(split=["validation"] * 2), r"b\.csv: holds no image of the test split"),
        (other(image_id=["v", "y", "x"], label=[0, 0, 0], probs=[0.5] * 3, split=["validation", "test", "test"]), r"row 2, column 'label': is '0' for image 'y'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            compare(a, wrong, bootstrap=0)
    with pytest.raises(InputError, match="unknown rules"):
        compare(a, a, rules="fair")


def test_seeds_of_a_method_hold_the_same_images_and_are_no_copies():
    a, b = models()
    check_seeds(["A", "A", "B"], [a, b, a])
    part = b.take(np.arange(len(b) - 1))
    with pytest.raises(InputError, match=r"lacks 1 of the .* Both are named 'A'"):
        check_seeds(["A", "B", "A"], [a, b, part])
    with pytest.raises(InputError, match=r"predicts the same as .*: a copy is not another seed"):
        check_seeds(["A", "A", "A"], [a, b, b.take(np.arange(len(b))[::-1])])


def test_a_deterministic_method_may_repeat_itself_under_other_seeds():
    a, _ = models()
    first, second = (replace(a, metadata={"seed": seed}) for seed in (0, 1))
    check_seeds(["A", "A"], [first, second])
    with pytest.raises(InputError, match="a copy"):
        check_seeds(["A", "A"], [first, replace(first, source="copy.csv")])


def test_the_same_images_are_told_in_any_order_and_per_shared_domain():
    a, b = models(domains=True)
    assert have_same_images([a, b.take(np.arange(len(b))[::-1])])
    assert have_same_images([a, b.select(domain="shifted")])
    assert not have_same_images([a, b.take(np.arange(1, len(b)))])


def test_aggregate():
    found = aggregate([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.error == pytest.approx(np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    assert np.isnan(aggregate([1.0, None]).mean)
    assert np.isnan(aggregate([1.0]).error)
    with pytest.raises(InputError, match="no runs"):
        aggregate([])


def test_single_runs_have_the_usual_standard_error():
    values = [0.1, 0.4, 0.2, 0.9]
    found = mean_over_subsets(values, [(k,) for k in range(4)], 4)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.error == pytest.approx(np.std(values, ddof=1) / 2)
    published = mean_over_subsets(values, [(k,) for k in range(4)], 4, "published")
    assert published.error == pytest.approx(np.std(values) / 2)


def test_ensembles_of_means_have_the_error_of_the_mean_of_their_members():
    """An ensemble whose value is the mean of its members' tells nothing new: the closed form is s / sqrt(n)."""
    x = np.random.default_rng(1).normal(size=6)
    every = list(combinations(range(6), 3))
    found = mean_over_subsets([x[list(s)].mean() for s in every], every, 6)
    assert found.mean == pytest.approx(x.mean())
    assert found.error == pytest.approx(x.std(ddof=1) / np.sqrt(6))


def test_the_error_covers_what_other_seeds_would_give():
    """A maximum over three members, six seeds, 600 studies: the squared error's mean is near the true variance. The jackknife of a
    U-statistic is not biased downwards (Efron & Stein), and for a mildly curved one not by much upwards; the naive error is. Seed
    2; the standard error of the mean of 600 variances is about 3 %."""
    random = np.random.default_rng(2)
    every = list(combinations(range(6), 3))
    means, squares, naive = [], [], []
    for _ in range(600):
        x = random.uniform(size=6)
        values = [x[list(s)].max() for s in every]
        found = mean_over_subsets(values, every, 6)
        means.append(found.mean)
        squares.append(found.error**2)
        naive.append(np.var(values, ddof=1) / 20)
    true = np.var(means)
    assert 0.9 < np.mean(squares) / true < 1.5
    assert np.mean(naive) / true < 0.5


def test_without_a_seed_to_leave_out_or_a_value_there_is_no_error():
    assert np.isnan(mean_over_subsets([0.5], [(0, 1, 2)], 3).error)
    every = list(combinations(range(4), 3))
    assert np.isnan(mean_over_subsets([0.5, None, 0.5, 0.5], every, 4).mean)
    # Of draws that are not all subsets the jackknife knows nothing.
    assert np.isnan(mean_over_subsets([0.5, 0.6], every[:2], 4).error)


def test_subsets_that_share_no_seed_are_independent():
    found = mean_over_subsets([0.5, 0.6, 0.8], [(0, 1, 2), (3, 4, 5), (6, 7, 8)], 9)
    assert found.error == np.std([0.5, 0.6, 0.8], ddof=1) / np.sqrt(3)
