import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from retinabench.core.errors import InputError
from retinabench.metrics import ordered_pairs, referral_curves, weighted_images
from retinabench.metrics.arrays import referral_curve
from retinabench.metrics.ordered_pairs import Pairs
from retinabench.metrics.referral_curves import METRICS, area_of, coarse_auprc_area, curve_of, values_on_grid
from retinabench.metrics.weighted_images import Cases, Weighted
from support.shared_inputs import big, images


@pytest.mark.parametrize("decimals", [1, 2, 9])
@pytest.mark.parametrize("order", ["entropy", "free", "one tie", "ties", "right first", "equal"])
def test_the_areas_are_the_means_over_the_counts_that_refer_at_most_half(order, decimals):
    """That of AUROC in closed form where a block is of one class, count by count in the others, for replicates and single weights."""
    y, p, rng = big(300, seed=4)
    p = p.round(decimals)
    free = rng.random(len(y))
    orders = {"entropy": -np.abs(p - 0.5), "free": free, "one tie": np.where(np.arange(len(y)) == 7, free[3], free),
              "ties": free.round(1), "right first": (p > 0.5) != y, "equal": 0 * p}  # fmt: skip
    cases = Cases(y, p, orders[order])
    weights = rng.multinomial(len(y), np.ones(len(y)) / len(y), size=5).astype(float)
    area = area_of(cases.weighted(weights), "auroc")
    for weight, value in zip(weights, area, strict=True):
        assert curve_of(cases.weighted(weight), "auroc").area == pytest.approx(value, abs=1e-13)
        curve = METRICS["auroc"](cases.weighted(weight))
        assert value == pytest.approx(curve[len(y) // 2 - 1 :].mean(), abs=1e-12)
        precision = curve_of(cases.weighted(weight), "auprc")
        assert precision.area == pytest.approx(precision.value[: len(y) // 2 + 1].mean(), abs=1e-14)


@pytest.mark.parametrize("uncertainty", ["entropy", "free", "ties"])
def test_auroc_at_any_count_of_an_eyepacs_sized_set(uncertainty):
    y, p, rng = big(42_670)
    u = {"entropy": -np.abs(p - 0.5), "free": rng.random(len(y)), "ties": np.round(rng.random(len(y)), 3)}[uncertainty]
    curve = referral_curve(y, p, u, "auroc")
    assert len(curve.value) == len(y)
    order = np.argsort(u, kind="stable")
    blocks = np.append(np.flatnonzero(np.diff(u[order])), len(u) - 1) + 1
    for retained in rng.choice(blocks[blocks > 100], 12, replace=False):
        kept = order[:retained]
        truth = metrics.roc_auc_score(y[kept], p[kept])
        assert abs(curve.value[len(y) - retained] - truth) < 1e-12


@pytest.mark.parametrize("uncertainty", ["entropy", "free", "ties"])
def test_auroc_of_a_large_balanced_set(uncertainty):
    """Fractional weights on many images: cumulated sums must not lose what the pairs add."""
    y, p, rng = big(20_000, seed=2)
    u = {"entropy": -np.abs(p - 0.5), "free": rng.random(len(y)), "ties": np.round(rng.random(len(y)), 2)}[uncertainty]
    w = np.where(rng.random(len(y)) < 0.07, 13.2857, 1.0)
    cases = Cases(y, p, u)
    weighted = cases.weighted(w)
    value = curve_of(weighted, "auroc").value[::-1]
    for mass in rng.choice(weighted.mass[100:], 8):
        kept = u <= cases.uncertainty[cases.ends[np.searchsorted(weighted.mass, mass) - 1]]
        at = weighted.locate(np.array([mass]))
        assert at.fraction[0] == 1
        truth = metrics.roc_auc_score(y[kept], p[kept], sample_weight=w[kept])
        total, _ = cases.derived(Pairs).cumulate(weighted.weight)
        here = total[at.block[0] + 1] / (w[kept] @ (y[kept] == 1) * (w[kept] @ (y[kept] == 0)))
        assert here == pytest.approx(truth, abs=1e-12)
    assert len(value) == round(w.sum())


@pytest.mark.parametrize("ties", [None, 1])
def test_levels_that_are_passed_through_give_the_bits_of_those_that_are_kept(ties, monkeypatch):
    y, p, rng = big(3_000, seed=3)
    p = p if ties is None else p.round(ties)
    u, w = rng.random(len(y)).round(3), rng.integers(0, 4, len(y)) * 0.7
    kept = Pairs(Cases(y, p, u)).cumulate(w)
    monkeypatch.setattr(weighted_images, "MANY", 1000)
    monkeypatch.setattr(ordered_pairs, "MANY", 1000)
    monkeypatch.setattr(ordered_pairs, "PARTS", 2)
    pairs = Pairs(Cases(y, p, u))
    assert Cases(y, p, u).order.dtype == np.int32
    for _ in range(2):  # passed through, then kept
        for found, expected in zip(pairs.cumulate(w), kept, strict=True):
            assert (found == expected).all()
    assert "steps" in vars(pairs)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_few_blocks_are_ranked_anew_with_the_same_bits(blocks, monkeypatch):
    y, p, rng = big(3_000, seed=4)
    p, u, w = p.round(2), rng.integers(0, blocks, len(y)), rng.integers(0, 3, len(y)).astype(float)
    few = Pairs(Cases(y, p, u)).cumulate(w, whole=True)
    monkeypatch.setattr(ordered_pairs, "FEW_BLOCKS", 0)
    for whole in (True, False):  # integers and floating-point numbers
        for found, expected in zip(few, Pairs(Cases(y, p, u)).cumulate(w, whole=whole), strict=True):
            assert (found == expected).all()


def test_auprc_beyond_the_work_limit_marks_what_is_exact(monkeypatch):
    y, p, rng = big(3000)
    u = rng.random(3000)
    truth = referral_curve(y, p, u, "auprc").value
    monkeypatch.setattr("retinabench.metrics.referral_curves.WORK", 1)
    curve = referral_curve(y, p, u, "auprc")
    assert curve.exact.sum() == 1000
    np.testing.assert_allclose(curve.value[curve.exact], truth[curve.exact], atol=1e-12)


def retained_weights(u, w):
    """(K, N) weight of every image at every count, from the definition: the block at the threshold is shared."""
    total = w.sum()
    count = max(1, round(total))
    rows = []
    for k in range(count, 0, -1):
        left, row = total * k / count, np.zeros(len(u))
        for value in np.unique(u):
            block = u == value
            if (mass := w[block].sum()) > 0:
                row[block] = w[block] * min(1.0, max(0.0, left / mass))
                left -= mass
        row[row < 1e-11 * w] = 0
        rows.append(row)
    return np.array(rows)


def by_sklearn(metric, y, p, r):
    keep = r > 0
    y, p, r = y[keep], p[keep], r[keep]
    if metric == "auroc":
        return metrics.roc_auc_score(y, p, sample_weight=r) if len(set(y)) == 2 else np.nan
    if metric == "auprc":
        return metrics.average_precision_score(y, p, sample_weight=r) if y.any() else np.nan
    if metric == "accuracy":
        return metrics.accuracy_score(y, p > 0.5, sample_weight=r)
    if metric == "brier":
        return np.average((p - y) ** 2, weights=r)
    if metric == "prevalence":
        return np.average(y, weights=r)
    if metric == "nll":
        return metrics.log_loss(y, np.clip(p, 1e-15, 1 - 1e-15), sample_weight=r, labels=[0, 1])
    if metric in ("sensitivity", "specificity"):
        of = 1 if metric == "sensitivity" else 0
        return np.average((p > 0.5)[y == of] == of, weights=r[y == of]) if (y == of).any() else np.nan
    raise AssertionError(metric)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=10, deadline=None)
@given(case=images())
def test_every_count_equals_sklearn(metric, case):
    y, p, u, w = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        truth = np.array([by_sklearn(metric, y, p, r) for r in retained_weights(u, w)])
    value = referral_curve(y, p, u, metric, weight=w).value
    np.testing.assert_allclose(value, truth, atol=1e-12, rtol=0)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25, deadline=None)
@given(case=images(), seed=st.integers(0, 1000))
def test_row_order_never_matters(metric, case, seed):
    y, p, u, _ = case
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = referral_curve(y, p, u, metric), referral_curve(y[order], p[order], u[order], metric)
    np.testing.assert_array_equal(a.value, b.value)


def test_the_expected_area_does_not_depend_on_the_number_of_images():
    """The mean of 400 samples of 30 images lies within 3.5 standard errors of the area of all (seed 2)."""
    rng = np.random.default_rng(2)
    y = rng.random(20_000) < 0.3
    p = 1 / (1 + np.exp(-rng.normal(3 * y - 1.5, 1.5)))
    u = -np.abs(p - 0.5)
    small = [referral_curve(y[k], p[k], u[k], "auroc").area for k in rng.integers(20_000, size=(400, 30))]
    small = np.array(small)[np.isfinite(small)]
    error = small.std() / np.sqrt(len(small))
    assert abs(small.mean() - referral_curve(y, p, u, "auroc").area) < 3.5 * error
    assert len(small) > 380


def test_one_class_has_no_auroc_and_a_curve_says_where_a_class_runs_out():
    curve = referral_curve([1, 1, 1], [0.2, 0.7, 0.9], [0.3, 0.2, 0.1], "auroc")
    assert np.isnan(curve.value).all()
    assert np.isnan(curve.area)
    assert "3 positive and 0 negative" in curve.why
    curve = referral_curve([1, 0, 0, 0], [0.9, 0.1, 0.2, 0.3], [4.0, 1, 2, 3], "auroc")
    assert np.isnan(curve.value[1:]).all()
    assert "both classes where 50 % are referred" in curve.why
    curve = referral_curve([1, 0, 0, 0], [0.9, 0.1, 0.2, 0.3], [4.0, 1, 2, 3], "sensitivity")
    assert curve.why.startswith("undefined at 3 of 4 counts")
    assert curve.positives.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier", "prevalence"])
def test_means_are_exactly_the_expectation_over_random_tie_breaking(metric):
    y, p, u = np.array([1, 0, 1, 0, 1, 1]), np.array([0.9, 0.8, 0.3, 0.1, 0.6, 0.2]), [0, 1, 1, 1, 1, 2.0]
    values = []
    for order in itertools.permutations(range(4)):
        distinct = np.array([0, *(1 + np.array(order) / 10), 2])
        values.append(referral_curve(y, p, distinct, metric).value)
    np.testing.assert_allclose(referral_curve(y, p, u, metric).value, np.mean(values, axis=0), atol=1e-14)


def test_wrong_words_are_named():
    with pytest.raises(InputError, match="auroc"):
        referral_curve([0, 1], [0.1, 0.9], [1, 2], "auorc")
    with pytest.raises(InputError, match="corrected"):
        referral_curve([0, 1], [0.1, 0.9], [1, 2], "auroc", rules="correct")
    with pytest.raises(InputError, match="weights"):
        referral_curve([0, 1], [0.1, 0.9], [1, 2], "auroc", weight=[-1, 1])


def test_average_precision_at_a_few_counts_is_that_of_every_count():
    """Also of a block that is retained in part, and where there are too many probabilities to take rows together."""
    y, probs, rng = big(400)
    weight = np.stack([np.ones(400), rng.permutation(np.repeat([0.0, 1, 2, 5], [160, 120, 80, 40]))])[[0, 1, 1]]
    for p, u in orders(probs, rng):
        w = Cases(y, p, u).weighted(weight)
        exact = []
        for row in w.weight:
            one = Weighted(w.cases, row)
            chosen = np.linspace(one.count / 2 - 1, one.count - 1, referral_curves.COARSE).round().astype(int)
            exact.append(referral_curves.auprc_values(one)[0][chosen].mean())
        assert coarse_auprc_area(w) == pytest.approx(exact, abs=1e-12)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(referral_curves, "MANY_STEPS", 3)
            assert coarse_auprc_area(Weighted(w.cases, w.weight)) == pytest.approx(exact, abs=1e-12)


def orders(p, rng):
    """Probabilities and uncertainties: any order, few blocks, from both ends inwards, and so with ties and wide blocks."""
    yield p, rng.random(len(p))
    yield p, rng.integers(0, 20, len(p)).astype(float)
    for digits in (15, 2, 1):
        rounded = np.round(p, digits)
        yield rounded, -np.abs(rounded - 0.5)
        yield rounded, -np.round(np.abs(rounded - 0.5), 1)


@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier", "auroc"])
def test_the_area_is_the_mean_of_the_curve(metric):
    """Of whole and of fractional weights, in every order; also where images are left out."""
    y, probs, rng = big(300)
    drawn = rng.multinomial(300, np.full(300, 1 / 300), 3).astype(float)
    for p, u in orders(probs, rng):
        for weight in (drawn, np.ones((1, 300)), drawn * rng.choice([1.0, 12.1], 300), np.vstack([drawn, drawn / 3])):
            areas = area_of(Cases(y, p, u).weighted(weight), metric)
            for row, area in zip(weight, areas, strict=True):
                value = referral_curve(y, p, u, metric, weight=row).value
                enters = value[: len(value) // 2 + 1] if metric == "auroc" else value
                assert area == pytest.approx(enters.mean(), abs=1e-12)


def test_values_on_a_grid_are_those_of_scikit_learn_and_linear_between_counts():
    rng = np.random.default_rng(1)
    n = 80
    y, p, u = rng.integers(0, 2, n), rng.uniform(0.05, 0.95, n), rng.permutation(n).astype(float)
    w = Cases(y, p, u).weighted()
    found = values_on_grid(w, np.array([0.0, 0.25, 0.5]), 0.05)
    for k, kept in enumerate([u < n, u < 0.75 * n, u < 0.5 * n]):
        assert np.isclose(found["accuracy"][k], metrics.accuracy_score(y[kept], p[kept] > 0.5), atol=1e-12)
        assert np.isclose(found["auroc"][k], metrics.roc_auc_score(y[kept], p[kept]), atol=1e-12)
        assert np.isclose(found["nll"][k], metrics.log_loss(y[kept], p[kept]), atol=1e-12)
    values = values_on_grid(w, 1 - np.array([40.0, 40.25, 41.0, 10.0, 9.0]) / n, 0.05)["accuracy"]
    assert np.isclose(values[1], 0.75 * values[0] + 0.25 * values[2], atol=1e-12)
    assert np.isfinite(values[3])
    assert np.isnan(values[4])
    assert np.isnan(values_on_grid(w, np.array([0.5]), 0.6)["accuracy"]).all()


def test_on_a_grid_a_weight_is_a_number_of_copies_with_ties_too():
    rng = np.random.default_rng(3)
    n, grid = 80, np.linspace(0, 1, 23)
    y, p, u = rng.integers(0, 2, n), rng.uniform(0.05, 0.95, n).round(1), rng.integers(0, 12, n).astype(float)
    weight = rng.multinomial(n, np.full(n, 1 / n), 3)
    found = values_on_grid(Cases(y, p, u).weighted(weight), grid, 0.05)
    for row, times in enumerate(weight):
        alone = Cases(*(np.repeat(column, times) for column in (y, p, u))).weighted()
        for name, values in values_on_grid(alone, grid, 0.05).items():
            np.testing.assert_allclose(found[name][row], values, atol=1e-10, err_msg=name)
