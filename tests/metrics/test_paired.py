from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss, log_loss

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.bootstrap import cluster_codes, replicate_weight
from retinabench.metrics.comparison import compare
from retinabench.predictions.several import check_seeds, have_same_images
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
