"""Design effects against simulated variances, and the correlation against its brute-force meaning."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics import planning
from retinabench.metrics.intervals import auroc_error, clopper_pearson
from retinabench.metrics.planning import Clusters, exact_power, images_for_power, intra_patient_correlation


def test_design_effects_by_hand():
    two_eyes = Clusters(2, 0.5, 0.6)
    # Another image of the patient is positive with probability 0.1 + 0.6 * 0.9 = 0.64, negative with 0.9 + 0.6 * 0.1.
    assert two_eyes.positive_effect(0.1) == pytest.approx(1 + 0.64 * 0.5)
    assert two_eyes.negative_effect(0.1) == pytest.approx(1 + 0.96 * 0.5)
    assert two_eyes.effect == 1.5
    assert Clusters(1).effect == Clusters(2, 0).effect == 1
    assert Clusters(1.5, 0.5, 1, mates=3).effect == 2


def test_the_correlation_of_equal_clusters_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    hit = rng.random((400, 3)) < rng.beta(2, 1, (400, 1))
    p = hit.mean()
    pairs = [np.mean((hit[:, a] - p) * (hit[:, b] - p)) for a in range(3) for b in range(a)]
    found = intra_patient_correlation(hit.ravel(), np.repeat(np.arange(400), 3))
    # The estimator divides the within-patient part by its degrees of freedom; the pair average does not: O(1/G).
    assert found == pytest.approx(np.mean(pairs) / (p * (1 - p)), abs=2e-3)


def test_the_correlation_of_one_image_per_patient_is_unknown():
    assert np.isnan(intra_patient_correlation([1, 0, 1], ["a", "b", "c"]))
    assert np.isnan(intra_patient_correlation([1, 1, 1, 1], ["a", "a", "b", "b"]))
    assert intra_patient_correlation([1, 1, 0, 0], ["a", "a", "b", "b"]) == 1


def test_the_design_effect_is_the_ratio_of_variances():
    """Sensitivity of two correlated eyes: simulated variance over that of independent eyes (seed 1, 4,000 studies). The standard
    error of a variance ratio over R studies is about sqrt(2 / R) = 2.2 %; the tolerance is four of them."""
    rng = np.random.default_rng(1)
    patients, prevalence, disease, right = 200, 0.3, 0.6, 0.5
    both = prevalence**2 + disease * prevalence * (1 - prevalence)
    kind = rng.choice(3, p=[both, 2 * (prevalence - both), 1 - 2 * prevalence + both], size=(4000, patients))
    positives = np.array([2, 1, 0])[kind]
    chance = rng.beta(0.8 / 1 * (1 / right - 1), 0.2 / 1 * (1 / right - 1), kind.shape)  # correlation `right`
    found = rng.binomial(positives, chance)
    shares = found.sum(axis=1) / positives.sum(axis=1)
    independent = 0.8 * 0.2 / (2 * patients * prevalence)
    effect = Clusters(2, right, disease).positive_effect(prevalence)
    assert shares.var() / independent == pytest.approx(effect, rel=0.09)


@pytest.mark.parametrize(("expected", "half"), [(0.9, 0.05), (0.85, 0.1), (1.0, 0.03), (0.5, 0.02)])
def test_the_interval_is_narrow_enough_and_one_image_fewer_is_not(expected, half):
    def width(n):
        low, high = clopper_pearson(expected * n, n)
        return (high - low) / 2

    n = planning.images_for_half_width(expected, half)
    assert width(n) <= half < width(n - 1)


def test_power_by_enumeration():
    for n in (20, 57, 130):
        lower = np.array([clopper_pearson(k, n)[0] for k in range(n + 1)])
        # A success count rejects where P(X >= k | 0.8) <= 2.5 %, which is where its lower limit is 0.8 or more.
        power = stats.binom.pmf(np.arange(n + 1)[lower >= 0.8], n, 0.92).sum()
        assert exact_power([n], 0.92, 0.8)[0] == pytest.approx(power, abs=1e-12)


@pytest.mark.parametrize(("expected", "above", "power"), [(0.9, 0.85, 0.8), (0.95, 0.85, 0.9), (1.0, 0.9, 0.8)])
def test_from_the_returned_size_on_power_holds(expected, above, power):
    n = images_for_power(expected, above, power)
    found = exact_power(np.arange(max(n - 1, 1), 3 * n), expected, above)
    assert found[0] < power or n == 1
    assert (found[1:] >= power).all()
    null, true = np.sqrt(above * (1 - above)), np.sqrt(expected * (1 - expected))
    z = stats.norm.ppf(0.975) * null + stats.norm.ppf(power) * true
    assert n == pytest.approx((z / (expected - above)) ** 2, rel=0.15, abs=12)


def test_what_cannot_be_shown_is_refused():
    for arguments in [(0.8, 0.85), (0.9, 0.9), (1.2, 0.8), (0.9, 0.8999999)]:
        with pytest.raises(InputError):
            images_for_power(*arguments)
    for half in (0, 0.5, 1e-5):
        with pytest.raises(InputError):
            planning.images_for_half_width(0.9, half)


def test_the_variances_of_placements():
    """Binormal by the bivariate normal distribution; with disease ranked at random by a drawn model (standard error of it .0003)."""
    of_positives, of_negatives = planning.placement_variances(0.9)
    both = stats.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]]).cdf([stats.norm.ppf(0.9)] * 2)
    assert of_negatives == pytest.approx(both - 0.81, abs=1e-6)
    rng = np.random.default_rng(0)
    placement = np.where(rng.random(400_000) < 0.2, rng.random(400_000), 1.0)
    assert placement.mean() == pytest.approx(0.9, abs=0.001)
    assert 2 * of_positives - of_negatives == pytest.approx(placement.var(), abs=0.001)


def test_studies_of_a_real_like_population_have_the_planned_precision(shared):
    """Half-width .05 of AUROC .951 was planned from a pilot and from stated values; 150 studies know their mean half-width to .0013."""
    rows = np.genfromtxt(shared("cases", "population.csv.gz"), delimiter=",", names=True, dtype=None, encoding="utf-8")
    order = np.argsort(rows["patient_id"], kind="stable")
    label, prob = (rows[name][order].reshape(-1, 2) for name in ("label", "prob"))
    rng = np.random.default_rng(2)

    def study(patients):
        chosen = rng.integers(0, len(label), patients)
        return label[chosen].ravel(), prob[chosen].ravel(), np.repeat(np.arange(patients), 2)

    y, p, patient = study(3000)
    pilot = rb.Predictions(np.arange(len(y)), y, p, patient_id=patient)
    planned = rb.plan(pilot)["auroc"].patients, rb.plan(prevalence=0.197, auroc=0.951)["auroc"].patients
    assert planned[0] <= planned[1] < 1.3 * planned[0]
    halves = [np.subtract(*auroc_error(*study(planned[0])).interval()[::-1]) / 2 for _ in range(150)]
    assert np.nanmean(halves) == pytest.approx(0.05, abs=0.005)


def test_the_published_example_of_heart_valve_failure():
    """Prevalence 0.018, C-statistic 0.8, logit(p) normal with mean -5 and standard deviation 2.5. Published with the authors'
    package: 905, 4,544 (by a simulation of the predictors) and 4,252 participants."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    assert planning.images_for_observed_over_expected(0.018, 1.0) == pytest.approx(905, abs=1)
    assert planning.images_for_c_statistic(0.8, 0.018) == pytest.approx(4252, abs=1)
    assert planning.images_for_calibration_slope(-5 + 2.5 * nodes, weights) == pytest.approx(4544, rel=0.005)


def test_the_slope_follows_from_the_information_of_a_logistic_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(-1, 1.5, 500)
    v = expit(x) * expit(-x)
    design = np.column_stack([np.ones(500), x])
    error = np.sqrt(np.linalg.inv((design * v[:, None]).T @ design)[1, 1])
    width = 2 * stats.norm.ppf(0.975) * error
    assert planning.images_for_calibration_slope(x, np.ones(500), width) == pytest.approx(500)


def test_the_binormal_predictors_are_calibrated():
    points, weight = planning.calibrated_predictors(0.9, 0.2)
    assert weight @ expit(points) == pytest.approx(0.2, abs=1e-6)  # O/E = 1
    half = len(points) // 2
    q = weight[:half].sum()
    assert q == pytest.approx(0.2)
    # In each class normal with distance d: their difference has the AUROC.
    gap = weight[:half] @ points[:half] / q - weight[half:] @ points[half:] / (1 - q)
    variance = weight[:half] @ points[:half] ** 2 / q - (weight[:half] @ points[:half] / q) ** 2
    assert stats.norm.cdf(gap / np.sqrt(2 * variance)) == pytest.approx(0.9)


def test_the_threshold_of_a_sensitivity():
    threshold, specificity = planning.threshold_of_sensitivity(0.9, 0.2, 0.85)
    d = np.sqrt(2) * stats.norm.ppf(0.9)
    positive, negative = (stats.norm(logit(0.2) + sign * d**2 / 2, d) for sign in (1, -1))
    assert positive.sf(logit(threshold)) == pytest.approx(0.85)
    assert negative.cdf(logit(threshold)) == pytest.approx(specificity)


def test_the_net_benefit_has_the_planned_standard_error():
    """Seed 1, 20,000 studies: a standard error is known to 0.5 %, the formula is a linearisation; tolerance 4 %."""
    rng = np.random.default_rng(1)
    sens, spec, q, t = 0.85, 0.9, 0.2, 0.15
    n = round(planning.images_for_net_benefit(sens, spec, q, t))
    table = rng.multinomial(n, [q * sens, q * (1 - sens), (1 - q) * (1 - spec), (1 - q) * spec], size=20_000)
    tp, fn, fp, _ = table.T
    standardised = (tp - fp * t / (1 - t)) / (tp + fn)
    assert standardised.std() * 2 * stats.norm.ppf(0.975) == pytest.approx(0.2, rel=0.04)
