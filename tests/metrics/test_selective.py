"""One-number summaries against fd-shifts, Shifts and the poster's definition, and their identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import roc_auc_score

from conftest import shared_path
from retinabench.metrics import classification, rejection
from retinabench.metrics.classification import referred_names, referred_values
from retinabench.metrics.weighted_images import Cases
from support.repeated import weighted_and_repeated
from support.shared_inputs import answers, cases_of, images

NAMES = ("n400", "n400_tied", "tiny10")


def weighted(name):
    return Cases(*cases_of(name)).weighted()


@pytest.mark.parametrize("name", NAMES)
def test_fd_shifts_on_real_sizes(name):
    w, truth = weighted(name), answers("reference_outputs")[name]["fd_shifts"]
    assert classification.aurc_of(w) == pytest.approx(truth["aurc"], abs=1e-12)
    assert classification.e_aurc_of(w) == pytest.approx(truth["eaurc"], abs=1e-12)
    assert classification.augrc_of(w) == pytest.approx(truth["augrc"], abs=1e-12)


N = 100

FD_INPUTS = {
    "const": np.ones(N), "alt01": np.arange(N) % 2, "alt10": (np.arange(N) + 1) % 2, "asc": np.linspace(0, 1, N),
    "plateaus": np.repeat([0.2, 0.4, 0.6, 0.8], N // 4), "all_zero": np.zeros(N), "all_one": np.ones(N),
}  # fmt: skip

FD_CASES = [
    "const|alt01", "alt01|alt01", "alt10|alt01", "asc|alt01", "plateaus|alt01", "const|all_zero", "const|all_one",
]  # fmt: skip


@pytest.mark.parametrize("case", FD_CASES)
def test_fd_shifts_unit_cases(case):
    confidence, correct = (FD_INPUTS[name].astype(float) for name in case.split("|"))
    w = Cases(np.zeros(N), np.where(correct > 0.5, 0.1, 0.9), -confidence).weighted()
    aurc, e_aurc, _, augrc = answers("fd_shifts_cases")[case]
    found = classification.aurc_of(w), classification.e_aurc_of(w), classification.augrc_of(w)
    assert found == pytest.approx((aurc, e_aurc, augrc), abs=1e-12)


@pytest.mark.parametrize("name", ["n400", "tiny10"])
def test_rc_index(name):
    w, truth = weighted(name), answers("own_outputs")["rc_index"][name]
    assert classification.rc_index_of(w) == pytest.approx(truth["grid_0_0.9_step0.1"], abs=1e-12)
    found = classification.accuracy_at(w, 1 - classification.RC_GRID)
    np.testing.assert_allclose(found, truth["curve_0_0.9"], atol=1e-12)


def test_rc_index_of_the_published_kaggle_curves():
    truth = answers("rc_index_filos")
    path = shared_path("golden", "evaluation", "bdlb_leaderboard", "all.csv")
    rows = [line.split(",") for line in path.read_text().splitlines()]
    for method, value in truth.items():
        ours = [r for r in rows if r[:3] == ["diabetic_retinopathy_diagnosis", "accuracy", method]]
        kept, accuracy = np.array([[float(r[3]), float(r[4]) / 100] for r in ours])[::-1].T
        assert classification.rc_area(1 - kept, accuracy) == pytest.approx(value, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(case=images())
def test_identities(case):
    y, p, u, weight = case
    w = Cases(y, p, u).weighted(weight)
    err = w.mean(w.cases.error)
    auroc, augrc, prr = classification.failure_auroc_of(w), classification.augrc_of(w), classification.prr_of(w)
    if 1e-9 < err < 1 - 1e-9:
        assert augrc == pytest.approx((1 - auroc) * (1 - err) * err + err**2 / 2, abs=1e-12)
        assert prr == pytest.approx(2 * auroc - 1, abs=1e-9)
        wrong, held = (p > 0.5) != y, weight > 0
        assert auroc == pytest.approx(roc_auc_score(wrong[held], u[held], sample_weight=weight[held]), abs=1e-12)
    else:
        assert np.isnan(auroc)
        assert np.isnan(prr)
        assert augrc == pytest.approx(err / 2, abs=1e-12)


def test_augrc_against_shifts():
    for name in ("n400", "n400_tied"):
        y, p, u = cases_of(name)
        truth = answers("reference_outputs")[name]["shifts"]
        w = Cases(y, p, u).weighted()
        n, err = len(y), w.mean(w.cases.error)
        r_auc = (n * classification.augrc_of(w) + err / 2) / (n + 1)
        assert r_auc == pytest.approx(truth["rauc_error"], abs=3e-6 if name == "n400_tied" else 3e-7)


def test_areas_by_hand():
    """Four images by increasing uncertainty: right, wrong, right, wrong; risks 0, 1/2, 1/3, 1/2."""
    w = Cases([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]).weighted()
    risk = [0, 1 / 2, 1 / 3, 1 / 2]
    trapezoid = 0.25 * (0 + (risk[0] + risk[1]) / 2 + (risk[1] + risk[2]) / 2 + (risk[2] + risk[3]) / 2)
    assert classification.aurc_of(w) == pytest.approx(trapezoid)
    assert classification.e_aurc_of(w) == pytest.approx(trapezoid - (0.5 + 0.5 * np.log(0.5)))
    cumulated = np.array([0, 0, 1, 1, 2]) / 4
    assert classification.augrc_of(w) == pytest.approx(0.25 * (cumulated[1:] + cumulated[:-1]).sum() / 2)
    assert classification.failure_auroc_of(w) == pytest.approx(3 / 4)
    assert classification.prr_of(w) == pytest.approx(2 * 3 / 4 - 1)


def risks(wrong, uncertainty):
    """Number of wrong images among the k most certain, ties shared evenly, for k = 1 … N."""
    certain = np.sort(uncertainty)
    below = [uncertainty < certain[k - 1] for k in range(1, len(wrong) + 1)]
    tied = [wrong[uncertainty == one].mean() for one in certain]
    return [wrong[b].sum() + t * (k - b.sum()) for k, (b, t) in enumerate(zip(below, tied, strict=True), start=1)]


def test_the_accuracy_of_the_retained_is_that_of_the_most_certain():
    w, copies = weighted_and_repeated()
    n = len(copies[0][0])
    found = classification.accuracy_at(w, np.arange(1.0, n + 1) / n)
    for row, (y, p, u, _) in enumerate(copies):
        expected = 1 - np.array(risks(((p > 0.5) != y).astype(float), u)) / np.arange(1, n + 1)
        np.testing.assert_allclose(found[row], expected, atol=1e-12)


def test_the_more_certain_half_of_images_without_ties():
    rng = np.random.default_rng(1)
    n = 30
    y, p, u = rng.integers(0, 2, n), rng.random(n), rng.permutation(n).astype(float)
    cases = Cases(y, p, u)
    found = dict(zip(referred_names(), referred_values(cases.weighted(), 0.5), strict=True))
    kept, called = u < n / 2, p > 0.5
    right = called == y
    accuracy, overall = right[kept].mean(), right.mean()
    perfect = min(1, right.sum() / kept.sum())
    missed = (y[kept] & ~called[kept]).sum() / y.sum()
    expected = {
        "accuracy_at_50": accuracy, "gain_at_50": accuracy - overall,
        "closed_at_50": (accuracy - overall) / (perfect - overall), "perfect_accuracy_at_50": perfect,
        "sensitivity_at_50": called[kept][y[kept] == 1].mean(), "prevalence_at_50": y[kept].mean(), "missed_at_50": missed,
        "specificity_at_50": 1 - called[kept][y[kept] == 0].mean(),
    }  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-12)


def test_where_nothing_is_retained_nothing_is_known():
    cases = Cases([0, 1], [0.2, 0.9], [0.1, 0.2])
    assert np.isnan(referred_values(cases.weighted(), 1.0)).all()


def folds_of(random, sizes=(80, 80, 120), signal=0.0):
    """Folds of images whose uncertainty tells the wrong predictions, the better the larger the signal."""
    found = []
    for n in sizes:
        label, prob = random.random(n) < 0.3, random.random(n)
        wrong = (prob > 0.5) != label
        found.append(Cases(label, prob, signal * wrong + random.random(n)).weighted())
    return found


def test_the_index_of_the_vertical_average_is_the_mean_of_the_folds():
    for signal in (0.0, 0.3, 2.0):
        folds = folds_of(np.random.default_rng(0), signal=signal)
        grid = classification.RC_GRID
        vertical = classification.rc_area(grid, rejection.vertical_accuracy(folds, grid))
        assert vertical == pytest.approx(np.mean([classification.rc_index_of(w) for w in folds]), abs=1e-12)


def test_the_band_holds_19_of_20_curves_of_random_order_at_each_point():
    random = np.random.default_rng(1)
    labelled = folds_of(random)
    low, high = rejection.random_band(labelled, classification.RC_GRID[1:])
    curves = np.array([
        rejection.vertical_accuracy([w.cases.reordered(random.random(len(w.cases))).weighted() for w in labelled], classification.RC_GRID[1:])
        for _ in range(600)
    ])  # fmt: skip
    inside = ((curves >= low) & (curves <= high)).mean(axis=0)
    # 600 draws: four standard errors of 0.95 are 0.036; counts are whole, of which few remain at 0.9.
    np.testing.assert_allclose(inside, 0.95, atol=0.04)
    np.testing.assert_allclose(curves.mean(axis=0), (low + high) / 2, atol=5 * curves.std(axis=0).max() / np.sqrt(600))


def test_steadiness_of_known_curves():
    n = 100
    wrong = np.arange(n) >= 80
    for order, rises, fall in ((np.arange(n), 1.0, 0.0), (-np.arange(n), 0.0, 0.8), (np.zeros(n), 0.0, 0.0)):
        w = Cases(np.zeros(n), np.where(wrong, 0.9, 0.1), order).weighted()
        found = rejection.steadiness([w])
        assert found[:2] == pytest.approx((rises, fall), abs=1e-12)


def test_p_values_of_steadiness_hold_in_random_order_and_see_a_signal():
    random = np.random.default_rng(2)
    null = np.array([rejection.steadiness(folds_of(random), seed, 199)[2:] for seed in range(200)])
    # A p-value of a test is at most 0.05 in one of twenty cases; 200 of them: four standard errors are 0.062.
    assert (null <= 0.05).mean(axis=0).max() < 0.05 + 0.062
    assert (null <= 0.5).mean(axis=0).max() < 0.5 + 0.14
    assert max(rejection.steadiness(folds_of(random, signal=1.0))[2:]) < 0.01
