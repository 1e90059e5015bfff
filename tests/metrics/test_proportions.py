import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics import intervals
from retinabench.metrics.clinical.screening_table import two_by_two
from retinabench.metrics.image_sets import operating_points
from retinabench.metrics.intervals import Interval, clopper_pearson, clustered_proportion, combined_proportions
from support.shared_inputs import answers


def test_clopper_pearson_is_golden():
    golden = answers("own_outputs")["idxdr_2x2"]
    for name, values in golden.items():
        if "/" in name:
            k, n = map(int, name.split()[-1].split("/"))
            np.testing.assert_allclose(clopper_pearson(k, n), values["clopper_pearson"], atol=1e-12)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_clopper_pearson_agrees_with_scipy(counts, level):
    k, n = counts
    oracle = stats.binomtest(k, n).proportion_ci(level, "exact")
    np.testing.assert_allclose(clopper_pearson(k, n, level), (oracle.low, oracle.high), atol=1e-10)


@given(st.sampled_from([0.0, 1.0]) | st.floats(1e-3, 0.999), st.floats(0.5, 500), st.floats(0.5, 0.999))
def test_no_interval_is_without_width_or_beside_its_value(p, n, level):
    for method in (intervals.jeffreys, clopper_pearson):
        low, high = method(p * n, n, level)
        assert 0 <= low <= p + 1e-12
        assert p - 1e-12 <= high <= 1
        assert high - low > 0.001


def test_fractional_successes_lie_between_whole_ones():
    """The fault of clopper_pearson(0.58, 7): its lower end was that of one success."""
    k = np.linspace(0, 7, 71)
    for method in (intervals.jeffreys, clopper_pearson):
        low, high = method(k, np.full(71, 7.0))
        np.testing.assert_allclose(low, 1 - high[::-1], atol=1e-12)
        low, high = low[1:-1], high[1:-1]
        assert (np.diff(low) >= 0).all()
        assert (np.diff(high) >= 0).all()
    assert clopper_pearson(0.58, 7)[0] == pytest.approx(stats.beta.ppf(0.025, 0.58, 7.42))


@pytest.mark.parametrize(("exact", "method"), [(False, intervals.jeffreys), (True, clopper_pearson)])
def test_single_images_give_the_interval_of_independent_trials(exact, method):
    hit = np.arange(200) < 173
    found = clustered_proportion(hit, np.ones(200), np.arange(200), exact=exact)
    assert found.value == 173 / 200
    np.testing.assert_allclose((found.low, found.high), method(173, 200), atol=1e-12)
    weighted = clustered_proportion(hit, np.full(200, 3.7), np.arange(200), exact=exact)
    np.testing.assert_allclose((weighted.low, weighted.high), (found.low, found.high), atol=1e-12)


def test_copied_images_count_once():
    rng = np.random.default_rng(2)
    hit = rng.random(500) < 0.9
    once = clustered_proportion(hit, np.ones(500), np.arange(500))
    twice = clustered_proportion(np.repeat(hit, 2), np.ones(1000), np.repeat(np.arange(500), 2))
    assert twice.low == pytest.approx(once.low, abs=3e-4)  # by the t quantile
    all_right = clustered_proportion(np.ones(40), np.ones(40), np.repeat(np.arange(20), 2))
    assert (all_right.low, all_right.high) == pytest.approx(clopper_pearson(20, 20), abs=1e-12)


def test_few_patients_of_the_audit():
    """Six diseased patients without an error, and one success among twelve images of six patients."""
    patient = np.repeat(np.arange(6), 2)
    assert clustered_proportion(np.ones(12), np.ones(12), patient).low == pytest.approx(0.025 ** (1 / 6))
    one = clustered_proportion(np.arange(12) == 0, np.ones(12), patient)
    assert 0 < one.low < 0.01
    assert one.high > 0.5
    assert np.isnan(clustered_proportion(np.ones(12), patient == 0, patient).low)  # a single patient


def test_an_error_never_improves_the_bound():
    for patients in (3, 10, 100):
        patient = np.repeat(np.arange(patients), 2)
        for exact in (False, True):
            every, wrongs = np.arange(2 * patients), range(4)
            lows = [clustered_proportion(every >= k, np.ones(2 * patients), patient, exact=exact).low for k in wrongs]
            assert (np.diff(lows) <= 0).all()


def test_an_interval_of_other_weights_or_of_a_mean_over_seeds():
    """Images that stand for several are less than as many patients; a mean of equal seeds is one seed."""
    rng = np.random.default_rng(4)
    hit, weight = rng.random(400) < 0.8, np.where(np.arange(400) < 40, 9.0, 1.0)
    plain = clustered_proportion(hit, np.ones(400), np.arange(400) // 2)
    heavy = clustered_proportion(hit, weight, np.arange(400) // 2)
    assert heavy.value == pytest.approx(np.average(hit, weights=weight))
    assert heavy.high - heavy.low > 1.2 * (plain.high - plain.low)
    shares = clustered_proportion(np.mean([hit, hit], axis=0), np.ones(400), np.arange(400) // 2)
    assert (shares.low, shares.high) == (plain.low, plain.high)
    wider = clustered_proportion(hit, np.ones(400), np.arange(400) // 2, variance=0.01)
    assert wider.high - wider.low > 2 * (plain.high - plain.low)


@pytest.mark.parametrize(
    ("p", "correlation", "patients", "images"), [(0.8, 0.6, 80, 3), (0.97, 0.95, 50, 6), (0.9, 0, 30, 2)]
)
def test_the_clustered_interval_covers_where_the_naive_does_not(p, correlation, patients, images):
    """600 data sets of correlated images; the standard error of a coverage of 95 % is 0.9 %."""
    rng = np.random.default_rng(3)
    patient, n = np.repeat(np.arange(patients), images), patients * images
    own = naive = 0
    for _ in range(600):
        common = np.repeat(rng.random(patients) < p, images)
        hit = np.where(rng.random(n) < np.sqrt(correlation), common, rng.random(n) < p)
        found = clustered_proportion(hit, np.ones(n), patient)
        own += found.low <= p <= found.high
        low, high = clopper_pearson(hit.sum(), n)
        naive += low <= p <= high
    assert 0.93 <= own / 600 <= 0.995  # few errors: above the level, as of any interval of a count
    if correlation:
        assert naive / 600 < 0.90


def test_nothing_eligible_and_wrong_input():
    assert np.isnan(clustered_proportion([1, 0], [0, 0], [1, 2]).value)
    with pytest.raises(InputError, match="between 0 and 1"):
        clustered_proportion([0, 2], [1, 1], [1, 2])
    with pytest.raises(InputError, match="2 successes, 3 weights"):
        clustered_proportion([0, 1], [1, 1, 1], [1, 2])
    with pytest.raises(InputError, match="zeros and ones"):
        two_by_two([0, 3], [0, 1])
    with pytest.raises(InputError, match="2 finite numbers"):
        operating_points([0, 1], [0.2, np.nan])


def test_the_effective_number_by_hand():
    """Two images of each of 4 patients, 5 of 8 right: residuals of the patients .75, .75, -.25, -1.25, 3 with a failure at least."""
    y, codes = np.array([1, 1, 1, 1, 1, 0, 0, 0], float), np.repeat(np.arange(4), 2)
    found = 4 / 3 * (2 * 0.75**2 + 0.25**2 + 1.25**2) / 64
    inverse = (2 * found / (5 / 8 * 3 / 8) + 2 / 4) / (2 + 2)
    z, t = stats.norm.ppf(0.975), stats.t.ppf(0.975, 3)
    assert intervals.effective_images(y, np.ones(8), codes, 0.95) == pytest.approx((z / t) ** 2 / inverse)


def test_one_proportion_is_itself():
    hit, patient = np.array([1, 0, 1, 1, 0, 1]), list("aabbcd")
    alone = clustered_proportion(hit, np.ones(6), patient)
    found = combined_proportions([(2.0, hit)], patient)
    assert (found.value, found.low, found.high) == pytest.approx((2 * alone.value, 2 * alone.low, 2 * alone.high))
    turned = combined_proportions([(-1.0, hit)], patient)
    assert (turned.low, turned.high) == pytest.approx((-alone.high, -alone.low))


def test_a_proportion_and_its_complement_cancel():
    """p + (1 - p) = 1 almost without width: the correlation of the two is -1, the ends are not quite symmetric."""
    rng = np.random.default_rng(0)
    hit = rng.random(200) < 0.4
    found = combined_proportions([(1.0, hit), (1.0, ~hit)], np.arange(200) // 2)
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1), abs=0.01)


def test_newcombes_published_difference():
    """56 of 70 against 48 of 80 by Wilson's intervals: 0.2 [0.0524, 0.3339] (Newcombe, Stat. Med. 17:873, 1998, method 10)."""
    wilson = (stats.binomtest(k, n).proportion_ci(method="wilson") for k, n in ((56, 70), (48, 80)))
    a, b = (Interval(p, one.low, one.high) for p, one in zip((0.8, 0.6), wilson, strict=True))
    found = intervals.difference_of(a, b)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_a_share_is_the_root_of_the_interval():
    a, b = Interval(0.8, 0.7, 0.88), Interval(0.1, 0.06, 0.16)
    found = intervals.share_of_two(a, b, 0.2, 0.8)
    assert found.value == pytest.approx(0.16 / 0.24)
    for v, one, two, sign in ((found.low, 0.1, 0.06, -1), (found.high, 0.08, 0.04, 1)):
        ends = np.hypot((1 - v) * 0.2 * one, v * 0.8 * two)
        assert (1 - v) * 0.16 - v * 0.08 + sign * ends == pytest.approx(0, abs=1e-12)
    assert np.isnan(intervals.share_of_two(Interval(0, 0, 0.1), Interval(0, 0, 0.1), 1, 1).value)


def test_combinations_of_correlated_eyes_cover():
    """400 studies of 100 patients (seed 1): the SE of a coverage of 95 % is 1.1 %."""
    rng = np.random.default_rng(1)
    covered = 0
    patient = np.repeat(np.arange(100), 2)
    for _ in range(400):
        score = np.repeat(rng.normal(size=100), 2) * 0.7 + 0.714 * rng.normal(size=200)
        a, b = (score > 1.0364, (score < -0.2533) & (score > -1.2816))  # 15 % and 30 %, of the standard normal score
        found = combined_proportions([(1.0, a), (-0.5, b)], patient)
        covered += found.low <= 0.15 - 0.5 * 0.3 <= found.high
    assert 0.915 < covered / 400 <= 0.99


def test_a_single_patient_has_no_interval():
    found = combined_proportions([(1.0, [1, 0]), (-1.0, [0, 1])], ["a", "a"])
    assert found.value == 0
    assert np.isnan(found.low)


def test_a_known_rate_has_no_binomial_noise():
    """A reader of stated sensitivity .95 on every image: the rate is .95 whoever the patients are."""
    found = clustered_proportion(np.full(40, 0.95), np.ones(40), np.repeat(np.arange(20), 2))
    assert (found.low, found.high) == pytest.approx((0.95, 0.95), abs=1e-5)


def test_a_share_of_few_values_reckons_with_those_that_a_study_did_not_meet():
    """Specificity with a reader of .95 who reads a fifth: 2 % false alarms beside. 300 studies of 50 patients, some without a false alarm; SE 1.3 points."""
    rng, true, held = np.random.default_rng(8), 0.2 * 0.95 + 0.8 - 0.02, 0
    for _ in range(300):
        kind = np.repeat(rng.choice(3, 50, p=[0.2, 0.02, 0.78]), 2)
        success = np.choose(kind, (0.95, 0.0, 1.0))
        found = clustered_proportion(success, np.ones(100), np.repeat(np.arange(50), 2))
        held += found.low <= true <= found.high
    assert 0.92 <= held / 300 <= 0.99


def test_many_shares_have_the_intervals_of_each():
    rng = np.random.default_rng(9)
    success, weight = rng.choice([0.0, 0.9, 1.0], (4, 60), p=[0.05, 0.25, 0.7]), rng.random(60)
    success[3] = 0.9
    patient = np.repeat(np.arange(30), 2)
    many = np.transpose(intervals.shares_with_ends(success, weight, np.arange(0, 60, 2)))
    for row, ends in zip(success, many, strict=True):
        assert ends.tolist() == pytest.approx(list(vars(clustered_proportion(row, weight, patient)).values()))
    # One of the three values away: the sum of two proportions, by hand.
    hand = combined_proportions([(-1.0, success[0] == 0), (-0.1, success[0] == 0.9)], patient, weight)
    assert many[0, 1:] - 1 == pytest.approx([hand.low, hand.high])
