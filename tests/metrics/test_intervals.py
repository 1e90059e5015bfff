from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

import retinabench as rb
from retinabench.metrics import intervals, p_values, registry
from retinabench.metrics.comparison import compare
from retinabench.metrics.intervals import auroc_error, loss_interval, patients_of, scaled_interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, cluster_bootstrap, percentile_interval
from support.paired_models import models
from support.shared_inputs import answers, table

INFINITE = np.inf


@pytest.mark.parametrize(
    ("bounds", "scale", "slope", "back"),
    [
        ((0, 1), logit, lambda x: 1 / (x * (1 - x)), expit),
        ((0, INFINITE), np.log, lambda x: 1 / x, np.exp),
        ((-INFINITE, 1), lambda x: -np.log(1 - x), lambda x: 1 / (1 - x), lambda z: 1 - np.exp(-z)),
        ((-INFINITE, INFINITE), lambda x: x, lambda x: 1, lambda z: z),
    ],
)
def test_the_interval_is_symmetric_on_its_scale(bounds, scale, slope, back):
    value, error, degrees = 0.9, 0.03, 7
    half = stats.t.ppf(0.95, degrees) * error * slope(value)
    expected = [back(scale(value) - half), back(scale(value) + half)]
    assert scaled_interval(value, error, bounds, degrees, 0.9) == pytest.approx(expected)


def test_without_an_error_or_degrees_there_is_none():
    for error, degrees in ((0.0, 9), (np.nan, 9), (0.1, 0)):
        assert np.isnan(scaled_interval(0.5, error, (0.0, 1.0), degrees)).all()
    assert scaled_interval(1.0, 0.1, (0.0, 1.0), 9)[1] == 1.0


def drawn(seed=0, patients=60, decimals=2):
    """Two eyes a patient, correlated, with ties."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), 2)
    latent = np.repeat(rng.normal(size=patients), 2) + rng.normal(size=2 * patients) / 2
    y = (latent + rng.normal(size=2 * patients) > 0.7).astype(int)
    return y, latent.round(decimals), (latent + rng.normal(size=2 * patients)).round(decimals), patient


def test_golden_standard_errors():
    golden, data = answers("own_outputs")["auc_ci_n400"], table("n400")
    naive = auroc_error(data["y"], data["p"])
    clustered = auroc_error(data["y"], data["p"], data["patient"])
    assert naive.auroc == clustered.auroc == pytest.approx(golden["auc"], abs=1e-12)
    assert naive.standard_error == pytest.approx(golden["se_delong"], abs=1e-12)
    assert clustered.standard_error == pytest.approx(golden["se_obuchowski_clustered"], abs=1e-12)
    z = 1.96  # of the golden interval; ours has t on the logit scale
    plain = naive.auroc - z * naive.standard_error, naive.auroc + z * naive.standard_error
    assert plain == pytest.approx(golden["ci_delong"], abs=1e-5)
    assert naive.interval() == pytest.approx(golden["ci_delong"], abs=0.01)
    assert naive.interval()[0] < plain[0]  # longer towards one half
    assert (clustered.standard_error / naive.standard_error) ** 2 == pytest.approx(golden["design_effect"])


def test_the_definition_by_brute_force():
    y, score, _, patient = drawn()
    x, z = score[y == 1], score[y == 0]
    psi = (x[:, None] > z) + (x[:, None] == z) / 2
    m, n = psi.shape
    found = auroc_error(y, score)
    assert found.auroc == pytest.approx(psi.mean(), abs=1e-14)
    assert found.auroc == pytest.approx(roc_auc_score(y, score), abs=1e-14)
    delong = psi.mean(1).var(ddof=1) / m + psi.mean(0).var(ddof=1) / n
    assert found.standard_error == pytest.approx(np.sqrt(delong), abs=1e-14)
    p, q = patient[y == 1], patient[y == 0]
    ids = np.unique(patient)
    v10 = np.array([psi.mean(1)[p == i].sum() - (p == i).sum() * psi.mean() for i in ids])
    v01 = np.array([psi.mean(0)[q == i].sum() - (q == i).sum() * psi.mean() for i in ids])
    i10, i01, i = len(set(p)), len(set(q)), len(ids)
    s10, s01 = i10 / ((i10 - 1) * m) * (v10**2).sum(), i01 / ((i01 - 1) * n) * (v01**2).sum()
    s11 = i / (i - 1) * (v10 * v01).sum()
    variance = s10 / m + s01 / n + 2 * s11 / (m * n)
    clustered = auroc_error(y, score, patient)
    assert clustered.standard_error == pytest.approx(np.sqrt(variance), abs=1e-14)
    noise = (s10 / m) ** 2 / (i10 - 1) + (s01 / n) ** 2 / (i01 - 1)
    assert clustered.degrees == pytest.approx((s10 / m + s01 / n) ** 2 / noise)


def test_duplicated_images_do_not_narrow_the_clustered_error():
    """Each image twice: DeLong's error shrinks by sqrt(2), Obuchowski's stays (up to its one degree of freedom)."""
    y, score, _, _ = drawn(2)
    twice = np.repeat(y, 2), np.repeat(score, 2), np.repeat(np.arange(len(y)), 2)
    once = auroc_error(y, score).standard_error
    assert auroc_error(*twice).standard_error == pytest.approx(once, rel=1e-12)
    assert auroc_error(*twice[:2]).standard_error == pytest.approx(once / np.sqrt(2), rel=0.01)


def test_difference():
    y, a, b, patient = drawn(4)
    found = intervals.auroc_difference(y, a, b, patient)
    assert found.auroc == pytest.approx(roc_auc_score(y, a) - roc_auc_score(y, b), abs=1e-14)
    same = intervals.auroc_difference(y, a, a, patient)
    assert (same.auroc, same.standard_error, same.p_value) == (0.0, 0.0, 1.0)
    back = intervals.auroc_difference(y, b, a, patient)
    assert (back.auroc, back.standard_error) == pytest.approx((-found.auroc, found.standard_error))
    low, high = found.interval()
    t = stats.t.ppf(0.975, found.degrees)
    assert low == pytest.approx(found.auroc - t * found.standard_error, abs=1e-12)
    assert 20 < found.degrees < len(np.unique(patient))
    assert (low > 0 or high < 0) == (found.p_value < 0.05)


def test_one_class_one_patient_and_perfect_scores():
    assert np.isnan(auroc_error([1, 1], [0.2, 0.3]).auroc)
    assert np.isnan(auroc_error([1, 1], [0.2, 0.3]).interval()).all()
    lone = auroc_error([1, 0, 0], [0.9, 0.1, 0.2])
    assert lone.auroc == 1.0
    assert np.isnan(lone.standard_error)
    perfect = auroc_error([1, 1, 0, 0], [0.9, 0.8, 0.1, 0.2])
    assert perfect.standard_error == 0
    assert perfect.interval() == (pytest.approx(0.025 ** (1 / 2)), 1.0)  # two patients of each class
    assert np.isnan(perfect.p_value)  # no error is known, which is not certainty


def test_weights_are_repetition():
    y, score, _, patient = drawn(3)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    found, oracle = auroc_error(y, score, patient, weight), auroc_error(y[rows], score[rows], patient[rows])
    assert found.auroc == pytest.approx(oracle.auroc, abs=1e-14)
    assert (found.standard_error, found.degrees) == pytest.approx((oracle.standard_error, oracle.degrees), rel=1e-12)


def test_golden_bootstrap_errors():
    """The golden file's 2,000 draws and ours each have a relative SE of 1.6 %: 5 % is two of their difference."""
    golden, data = answers("own_outputs")["auc_ci_n400"], table("n400")
    cases = Cases(data["y"], data["p"])

    def statistic(weight):
        return SCORES["auroc"](cases.weighted(weight))[:, None]

    for key, cluster in (("se_bootstrap_patients", data["patient"]), ("se_bootstrap_eyes", np.arange(400))):
        draws = cluster_bootstrap(statistic, cluster, replicates=2000, seed=7)
        assert draws.std(ddof=1) == pytest.approx(golden[key], rel=0.05)
        if key.endswith("patients"):
            ends = [float(end[0]) for end in percentile_interval(draws)]
            assert ends == pytest.approx(golden["ci_cluster_boot"], abs=0.006)


# 20 patients with two images each, 10 patients per class, the surest first; patients 0, 1 and 19 have a wrong prediction.
PATIENT = np.repeat(np.arange(20), 2)
LABEL = PATIENT % 2
PROB = np.where(np.isin(PATIENT, (0, 1, 19)), 1 - LABEL, LABEL)
WEIGHTED = Cases(LABEL, PROB, np.arange(40), patient=PATIENT).weighted()


def test_patients_behind_a_standard_error_by_hand():
    assert patients_of(WEIGHTED) == 20
    assert patients_of(WEIGHTED, "classes") == 10
    assert patients_of(WEIGHTED, "retained") == 5  # half of the rarer class; 2 surely mistaken and 6 would be more
    assert patients_of(WEIGHTED, "errors") == 0  # three patients with an error are too few
    more = Cases(LABEL, 1 - PROB, np.arange(40), patient=PATIENT).weighted()
    assert patients_of(more, "errors") == 0
    half = Cases(LABEL, np.where(PATIENT < 8, 1 - LABEL, LABEL), np.arange(40), patient=PATIENT).weighted()
    assert patients_of(half, "errors") == 8


def test_areas_over_referral_are_decided_by_the_sure_mistakes():
    patient = np.repeat(np.arange(200), 2)
    label = patient % 2
    wrong = np.isin(patient, (3, 8, 190))
    w = Cases(label, np.where(wrong, 1 - label, label), np.arange(400), patient=patient).weighted()
    assert patients_of(w, "retained") == 2 + 5 + 1
    tied = Cases(label, np.where(wrong, 1 - label, label), patient=patient).weighted()
    assert patients_of(tied, "retained") == 5 + 1


def test_few_errors_give_no_interval_of_what_they_decide():
    draws = np.random.default_rng(0).normal(0.01, 0.001, 100)
    assert SCORES["rc_index"].interval.ends([WEIGHTED], 0.01, draws, 0.95).why == registry.FEW["errors"]


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_holm_adjusts_to_the_level_at_which_its_procedure_rejects(p):
    def rejected(alpha):
        out = np.zeros(len(p), bool)
        for step, k in enumerate(np.argsort(p, kind="stable")):
            if p[k] * (len(p) - step) > alpha:
                break
            out[k] = True
        return out

    for k, adjusted in enumerate(p_values.holm(p)):
        assert rejected(adjusted + 1e-12)[k] or adjusted == 1
        assert not rejected(adjusted - 1e-9)[k]


def test_exchanging_models_is_exact():
    """Against all 2^G signs, and against McNemar's exact test, which is the sign test of the discordant pairs."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        d = rng.integers(-3, 4, 9)
        signs = np.array(list(product((-1, 1), repeat=9)))
        expected = np.mean(np.abs(signs @ d) >= abs(d.sum()))
        assert p_values.sign_flip_p_value(d) == pytest.approx(expected, abs=1e-12)
    for b, c in ((7, 1), (12, 30), (0, 25)):
        oracle = stats.binomtest(b, b + c).pvalue
        assert p_values.sign_flip_p_value(np.repeat([1, -1], [b, c])) == pytest.approx(oracle, rel=1e-9)


def test_a_large_or_weighted_difference_has_the_normal_tail():
    rng = np.random.default_rng(6)
    d = rng.choice([-1, 1], 3900, p=[0.48, 0.52])
    exact = p_values.sign_flip_p_value(d)
    assert p_values.sign_flip_p_value(d * 1.5) == pytest.approx(exact, rel=0.1)
    assert p_values.sign_flip_p_value(np.ones(5000)) < 1e-100


def test_the_p_value_holds_its_level():
    """Two equally good models, 120 data sets: 5 % are rejected; SE of the share 2 %."""
    names = ("accuracy", "auroc", "nll")
    rejected = dict.fromkeys(names, 0)
    for seed in range(120):
        a, b = models(1000 + seed, patients=60, quality=(1.0, 1.0))
        found = compare(a, b, bootstrap=99, scores=names)["in_domain"]
        for name in names:
            rejected[name] += found[name].p < 0.05
    assert max(rejected.values()) / 120 <= 0.05 + 3 * 0.02
    assert min(rejected[name] for name in ("auroc", "nll")) / 120 >= 0.01


def correlated(rng, scores, images=40):
    """Replicates, and p-values, of differences that say the same thing with some noise; none is real."""
    shared = rng.normal(size=(images, 1))
    gained = 0.95 * shared + 0.3 * rng.normal(size=(images, scores))
    draws = np.stack([gained[rng.integers(images, size=images)].mean(axis=0) for _ in range(400)])
    t = gained.mean(axis=0) / draws.std(axis=0, ddof=1)
    return 2 * stats.t.sf(np.abs(t), images - 1), draws


def test_min_p_counts_repeated_scores_once():
    p, draws = correlated(np.random.default_rng(0), 1)
    repeated = p_values.min_p(np.repeat(p, 5), np.repeat(draws, 5, axis=1))
    # three standard errors of a share of 400 replicates at most .08
    np.testing.assert_allclose(repeated, p[0], atol=0.03)
    assert p_values.holm(np.repeat(p, 5)).max() == pytest.approx(min(1, 5 * p[0]))


@pytest.mark.slow
def test_min_p_rejects_a_true_hypothesis_in_one_of_twenty_studies():
    """Of 400 studies of eight differences that are 0, 20 are expected to name one; 9 to 33 is the range of 99.5 % (seed 3)."""
    rng = np.random.default_rng(3)
    rejected = [p_values.min_p(*correlated(rng, 8)).min() < 0.05 for _ in range(400)]
    assert 9 <= sum(rejected) <= 33


def test_min_p_has_no_least_value():
    p = np.array([1e-9, 0.2, 0.7])
    adjusted = p_values.min_p(p, np.random.default_rng(1).normal(size=(300, 3)))
    assert 1e-9 <= adjusted[0] < 5e-9
    assert (np.diff(adjusted) >= 0).all()


def test_losses_of_1_have_an_exact_interval_of_a_poisson_count():
    """With one whole pseudo-patient: Garwood's (Biometrika 28:437, 1936), whose lower end leaves out 5 % for a mean that no upper end can miss."""
    count, mean = np.arange(80), np.linspace(0.01, 40, 500)
    low, high = np.array([loss_interval(k / 100, k / 100**2, (1 / 100, 1 / 100**2)) for k in count]).T * 100
    half, whole = (np.append(0.0, stats.chi2.ppf(tail, 2 * count[1:]) / 2) for tail in (0.025, 0.05))
    np.testing.assert_allclose(low, np.maximum(half, np.minimum(whole, np.log(40))), rtol=1e-9)
    np.testing.assert_allclose(high, stats.chi2.ppf(0.975, 2 * count + 2) / 2, rtol=1e-9)
    holds = (low <= mean[:, None]) & (mean[:, None] <= high)
    assert ((holds * stats.poisson.pmf(count, mean[:, None])).sum(axis=1) >= 0.95).all()


def test_a_bounded_loss_is_mirrored_beyond_half_of_it():
    low, high = loss_interval(0.1, 0.002, (0.01, 0.001), 1.0)
    assert (1 - high, 1 - low) == pytest.approx(loss_interval(0.9, 0.002, (0.01, 0.001), 1.0))


def test_losses_that_few_patients_have_are_covered():
    """Errors in 3 and 10 % of 100 patients, of exponential weight as in AURC: 371 of 400 is two standard errors below 95 % (seed 4). At 85 % 390 and 348 cover."""
    rng = np.random.default_rng(4)
    further = intervals.WHOLE / 100, 2 * intervals.WHOLE / 100**2
    for share in (0.03, 0.1):
        covered = 0
        for _ in range(400):
            loss = rng.exponential(size=100) * (rng.random(100) < share)
            low, high = loss_interval(loss.mean(), loss.var(ddof=1) / 100, further)
            covered += low <= share <= high
        assert covered >= 371


def test_a_study_without_an_error_reckons_with_a_patient_who_is_wrong():
    """Loss at a random rank u: -ln u (AURC), 1 - u of half a patient (AUGRC), a share of the healthy (AUPRC)."""
    y = np.repeat([0, 1], 50)
    scores = rb.score(rb.Predictions(np.arange(100), y, 0.1 + 0.8 * y), bootstrap=20)["in_domain"].scores
    added = {"aurc": (1 / 100, 2 / 100**2), "augrc": (1 / 400, 1 / 6 / 100**2), "auprc": (1 / 100, 1 / 3 / 50**2)}
    for name, pseudo in added.items():
        end = loss_interval(0.0, 0.0, pseudo, 1.0)[1]
        assert (scores[name].low, scores[name].high) == pytest.approx((1 - end, 1) if name == "auprc" else (0, end))
