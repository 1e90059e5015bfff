"""Paired comparison: alignment, the paired draws by brute force, Holm against its procedure, ranks against counting."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.metrics import roc_auc_score

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.comparison.compare import compare
from retinabench.metrics.comparison.ranking import rank, ranks
from retinabench.metrics.inference.auroc_variance import auroc_difference
from retinabench.metrics.inference.bootstrap import cluster_codes, replicate_weight
from retinabench.metrics.inference.p_values import difference_p_value, holm

FAST = ("accuracy", "auroc", "nll", "referral_accuracy_area")


def models(seed=0, patients=120, quality=(1.5, 1.0), domains=False):
    """Predictions of several models on the same two eyes per patient; `quality` is the signal of each."""
    rng = np.random.default_rng(seed)
    n = 2 * patients
    patient = np.repeat([f"p{k}" for k in range(patients)], 2)
    hard = np.repeat(rng.normal(size=patients), 2)
    y = (rng.random(n) < 1 / (1 + np.exp(-hard + 0.5))).astype(int)
    noise = rng.normal(size=n)
    found = []
    for signal in quality:
        z = signal * (2 * y - 1) + noise + rng.normal(size=n)
        found.append(
            rb.Predictions(
                [f"i{k}" for k in range(n)],
                y,
                1 / (1 + np.exp(-z)),
                patient_id=patient,
                domain=np.where(np.arange(n) < n // 2, "in_domain", "shifted") if domains else None,
            )
        )
    return found


def test_draws_are_paired_and_equal_brute_force():
    a, b = models()
    found = compare(a, b, bootstrap=60, seed=3, scores=["accuracy", "auroc"])
    codes, clusters = cluster_codes(a.patient_id)
    draws = []
    for r in range(60):
        w = replicate_weight(codes, clusters, 3, r)
        rows = np.repeat(np.arange(len(w)), w.astype(int))
        right = [np.mean((m.prob[rows] > 0.5) == m.label[rows]) for m in (a, b)]
        area = [roc_auc_score(m.label[rows], m.prob[rows]) for m in (a, b)]
        draws.append((right[0] - right[1], area[0] - area[1]))
    scores = found.to_dict()["sets"]["in_domain"]["scores"]
    for name, column in zip(("accuracy", "auroc"), np.array(draws).T, strict=True):
        ends = np.quantile(column, [0.025, 0.975], method="weibull")
        np.testing.assert_allclose([scores[name]["low"], scores[name]["high"]], ends, atol=1e-12)
        assert scores[name]["p"] == difference_p_value(column)
        assert scores[name]["difference"] == pytest.approx(scores[name]["a"] - scores[name]["b"], abs=1e-15)


def test_the_interval_agrees_with_the_closed_form():
    """2,000 draws: an end of the interval has a Monte Carlo SE of about 6 % of the standard error."""
    a, b = models(1, patients=400, quality=(1.2, 1.0))
    entry = compare(a, b, bootstrap=2000, scores=["auroc"]).to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    closed = auroc_difference(a.label, a.prob, b.prob, a.patient_id)
    low, high = closed.interval()
    assert entry["low"] == pytest.approx(low, abs=0.25 * closed.standard_error)
    assert entry["high"] == pytest.approx(high, abs=0.25 * closed.standard_error)


def test_order_of_rows_does_not_matter():
    a, b = models(2)
    order = np.random.default_rng(0).permutation(len(b))
    assert (
        compare(a, b, bootstrap=50, scores=FAST).to_dict()["sets"]
        == compare(a, b.take(order), bootstrap=50, scores=FAST).to_dict()["sets"]
    )


def test_exchanging_the_models_changes_the_sign():
    a, b = models(3)
    one = compare(a, b, bootstrap=200, scores=FAST).to_dict()["sets"]["in_domain"]["scores"]
    two = compare(b, a, bootstrap=200, scores=FAST).to_dict()["sets"]["in_domain"]["scores"]
    for name in FAST:
        assert one[name]["difference"] == pytest.approx(-two[name]["difference"], abs=1e-15)
        assert one[name]["low"] == pytest.approx(-two[name]["high"], abs=1e-12)
        assert one[name]["p"] == two[name]["p"]
    assert one["auroc"]["better"] == "a"
    assert two["auroc"]["better"] == "b"
    assert one["nll"]["difference"] < 0  # lower is better: a still wins
    assert one["nll"]["better"] == "a"


def test_a_model_equals_itself():
    (a,) = models(4, quality=(1.0,))
    for entry in compare(a, a, bootstrap=50, scores=FAST).to_dict()["sets"]["in_domain"]["scores"].values():
        assert (entry["difference"], entry["low"], entry["high"], entry["p"]) == (0, 0, 0, 1)
        assert entry["better"] is None


def test_all_scores_on_all_sets():
    a, b = models(5, domains=True)
    found = compare(a, b, bootstrap=30)
    assert set(found.sets) == {"in_domain", "shifted", "joint", "balanced"}
    assert {"ood_auroc", "ood_auprc"} < set(found.to_dict()["sets"]["joint"]["scores"])
    values = rb.score(a, bootstrap=0)
    for name, one in found.to_dict()["sets"].items():
        assert one["patients"] == len(np.unique(a.patient_id)) // (1 if name in ("joint", "balanced") else 2)
        for score, entry in one["scores"].items():
            assert entry["a"] == pytest.approx(values.value(score, name), abs=1e-12)
            assert entry["low"] <= entry["difference"] + 0.05
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["schema"] == "retinabench.comparison/1"
    only = compare(a, b, bootstrap=0, sets=["shifted"], scores=["auroc"])
    assert list(only.sets) == ["shifted"]
    assert only.to_dict()["sets"]["shifted"]["scores"]["auroc"]["low"] is None


def test_published_rules_have_values_only():
    a, b = models(6, domains=True)
    found = compare(a, b, rules="published")
    entry = found.to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry["difference"] == pytest.approx(entry["a"] - entry["b"])
    assert "no intervals" in found.notes[-1]
    corrected = compare(a, b, bootstrap=0).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert entry.keys() == corrected.keys()
    with pytest.raises(InputError, match="Did you mean 'auroc'"):
        compare(a, b, rules="published", scores=["aurok"])


def test_published_rules_order_the_referral_as_the_released_code_does():
    """p and 1 - p differ in the last bit there: rounding them to ties, as the corrected rules do, is another order."""
    rng = np.random.default_rng(0)
    p = np.repeat(rng.random(100), 2)
    p[1::2] = 1 - p[1::2]
    a = rb.Predictions([f"i{k}" for k in range(200)], rng.random(200) < p, p)
    score = rb.score(a, rules="published")
    for name, entry in compare(a, a, rules="published").to_dict()["sets"]["in_domain"]["scores"].items():
        assert entry["a"] == entry["b"] == score.value(name)


def test_published_one_class_says_why():
    a = rb.Predictions(["x", "y"], [0, 0], [0.1, 0.2])
    entry = compare(a, a, rules="published").to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    assert (entry["difference"], entry["why"]) == (None, "one class only")


def test_one_class_is_undefined_with_a_reason():
    a = rb.Predictions(["x", "y", "z"], [0, 0, 0], [0.1, 0.2, 0.9])
    b = rb.Predictions(["x", "y", "z"], [0, 0, 0], [0.1, 0.6, 0.9])
    scores = compare(a, b, bootstrap=100).to_dict()["sets"]["in_domain"]["scores"]
    assert scores["auroc"]["difference"] is None
    assert "a: needs both classes" in scores["auroc"]["why"]
    assert scores["accuracy"]["difference"] == pytest.approx(1 / 3)
    assert "every image is its own cluster" in compare(a, b, bootstrap=0).notes[0]
    one = rb.Predictions(["x"], [1], [0.3])
    alone = compare(one, one, bootstrap=5).to_dict()["sets"]["in_domain"]["scores"]["accuracy"]
    assert (alone["difference"], alone["low"], alone["p"]) == (0, None, None)
    assert alone["why"] == "no interval: there is a single patient"


def test_other_images_or_labels_are_refused():
    a = rb.Predictions(["x", "y"], [0, 1], [0.1, 0.2], grade=[0, 2], patient_id=["p", "q"], source="a.csv")

    def other(**changes):
        return rb.Predictions(
            **{"image_id": ["y", "x"], "label": [1, 0], "probs": [0.5, 0.5], "source": "b.csv"} | changes
        )

    assert compare(a, other(), bootstrap=0).to_dict()["sets"]["in_domain"]["images"] == 2
    for wrong, message in (
        (other(image_id=["y", "z"]), r"b\.csv: lacks 1 of the 2 images of a\.csv, such as 'x'"),
        (other(image_id=["y", "x", "w"], label=[1, 0, 0], probs=[0, 0, 0]), r"b\.csv: holds 1 images that a\.csv lacks, such as 'w'"),
        (other(label=[0, 0]), r"b\.csv, row 1, column 'label': is '0' for image 'y' where a\.csv has '1'"),
        (other(grade=[2, 1]), r"row 2, column 'grade'"),
        (other(patient_id=["q", "r"]), r"row 2, column 'patient_id': is 'r' for image 'x' where a\.csv has 'p'"),
        (other(domain=["shifted", "in_domain"]), r"row 1, column 'domain'"),
        (other(split=["validation"] * 2), r"b\.csv: holds no image of the test split"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            compare(a, wrong, bootstrap=0)
    with pytest.raises(InputError, match="Did you mean 'auroc'"):
        compare(a, a, scores=["aurok"])
    with pytest.raises(InputError, match="unknown rules"):
        compare(a, a, rules="fair")


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_holm_adjusts_to_the_level_at_which_its_procedure_rejects(p):
    def rejected(alpha):
        out = np.zeros(len(p), bool)
        for step, k in enumerate(np.argsort(p, kind="stable")):
            if p[k] * (len(p) - step) > alpha:
                break
            out[k] = True
        return out

    for k, adjusted in enumerate(holm(p)):
        assert rejected(adjusted + 1e-12)[k] or adjusted == 1
        assert not rejected(adjusted - 1e-9)[k]


def test_holm_leaves_undefined_out():
    np.testing.assert_array_equal(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.integers(0, 4)))
def test_ranks_are_those_of_scipy(draws):
    np.testing.assert_allclose(ranks(draws, True), stats.rankdata(-draws, axis=1))
    np.testing.assert_allclose(ranks(draws, False), stats.rankdata(draws, axis=1))


def test_rank_says_how_often_each_is_first():
    trio = dict(zip(("good", "copy", "poor"), models(7, quality=(1.5, 1.5, 0.6)), strict=True))
    trio["copy"] = trio["good"]
    found = rank(trio, bootstrap=300, scores=["auroc", "nll"])
    for name in ("auroc", "nll"):
        entry = found.to_dict()["sets"]["in_domain"]["scores"][name]
        table = entry["models"]
        assert sum(one["first"] for one in table.values()) == pytest.approx(1)
        assert table["good"]["first"] == table["copy"]["first"] == pytest.approx(0.5, abs=0.01)
        assert table["good"]["rank"] == pytest.approx(1.5, abs=0.02)
        assert (table["poor"]["rank_low"], table["poor"]["rank_high"]) == (3, 3)
        pairs = {(pair["a"], pair["b"]): pair for pair in entry["pairs"]}
        assert pairs["good", "copy"]["p_holm"] == 1
        assert pairs["good", "poor"]["p"] == pytest.approx(2 / 301)
        assert pairs["good", "poor"]["p_holm"] == pytest.approx(6 / 301)
    json.dumps(found.to_dict(), allow_nan=False)
    none = rank(trio, bootstrap=0, scores=["auroc"]).to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    assert none["models"]["good"]["first"] is None
    with pytest.raises(InputError, match="two or more"):
        rank({"a": trio["good"]})


def test_the_p_value_holds_its_level():
    """Two equally good models, 400 data sets: 5 % are rejected; SE of the share 1.1 %."""
    rejected = 0
    for seed in range(400):
        a, b = models(1000 + seed, patients=60, quality=(1.0, 1.0))
        entry = compare(a, b, bootstrap=99, scores=["accuracy"]).to_dict()["sets"]["in_domain"]["scores"][
            "accuracy"
        ]
        rejected += entry["p"] < 0.05
    assert rejected / 400 <= 0.05 + 3 * 0.011
