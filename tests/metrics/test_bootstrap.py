"""The cluster bootstrap against its exact variance; Wilson and Clopper-Pearson against golden values."""

import json

import numpy as np
import pytest

import retinabench as rb
from metrics.test_classification import predictions
from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.metrics import image_sets, weighted_images
from retinabench.metrics.weighted_images import cluster_bootstrap, cluster_codes, percentile_interval, stacked
from retinabench.reports.evaluation import evaluation

RNG = np.random.default_rng(11)
PATIENT = np.repeat([f"p{k:03d}" for k in range(150)], RNG.integers(1, 4, 150))
VALUE = RNG.exponential(1.0, len(PATIENT)) + np.repeat(RNG.normal(0, 1, 150), np.unique(PATIENT, return_counts=True)[1])


def mean_and_total(weight, value=VALUE):
    total = np.einsum("rn,n->r", weight, value)
    return np.stack([total / weight.sum(axis=1), total], axis=1)


def test_weights_are_multiplicities_of_patients_and_depend_on_seed_and_replicate_only():
    codes, clusters = cluster_codes(PATIENT)
    weight = weighted_images.replicate_weight(codes, clusters, 3, 5)
    first = np.unique(codes, return_index=True)[1]
    assert weight[first].sum() == clusters
    assert (weight == weight[first][codes]).all()
    draws = cluster_bootstrap(mean_and_total, PATIENT, replicates=40, seed=7)
    assert np.array_equal(draws[:11], cluster_bootstrap(mean_and_total, PATIENT, replicates=11, seed=7))
    assert not np.array_equal(draws, cluster_bootstrap(mean_and_total, PATIENT, replicates=40, seed=8))


def test_draws_do_not_depend_on_the_order_of_the_rows():
    order = np.random.default_rng(0).permutation(len(PATIENT))
    draws = cluster_bootstrap(mean_and_total, PATIENT, replicates=20)
    moved = cluster_bootstrap(lambda w: mean_and_total(w, VALUE[order]), PATIENT[order], replicates=20)
    np.testing.assert_allclose(moved, draws, rtol=1e-12)


def test_one_patient_has_no_interval():
    draws = cluster_bootstrap(lambda w: mean_and_total(w, np.ones(2)), ["a", "a"], replicates=20)
    assert draws.shape == (20, 2)
    assert np.isnan(percentile_interval(draws)).all()


def test_the_variance_of_a_total_is_the_closed_form():
    """Var of the resampled total = G * population variance of the cluster totals; 4,000 draws: relative SE 2.2 %."""
    draws = cluster_bootstrap(mean_and_total, PATIENT, replicates=4000)[:, 1]
    codes, clusters = cluster_codes(PATIENT)
    totals = np.bincount(codes, VALUE)
    assert draws.var() == pytest.approx(clusters * totals.var(), rel=5 * 0.0224)
    assert draws.mean() == pytest.approx(VALUE.sum(), abs=5 * draws.std() / np.sqrt(4000))


@pytest.mark.parametrize(
    "ids", [["b", "a", "b"], [2, 1, 2], [2.5, 1.0, 2.5], np.array(["b", "a", "b"], object), [True, False, True]]
)
def test_ids_of_any_type(ids):
    codes, clusters = cluster_codes(ids)
    assert clusters == 2
    assert codes.tolist() == [1, 0, 1]


def test_ids_of_mixed_types_and_missing_ids():
    codes, clusters = cluster_codes(np.array(["b", 1, "b"], object))
    assert (codes.tolist(), clusters) == ([0, 1, 0], 2)
    for missing in ([1.0, np.nan], np.array(["a", None], object)):
        with pytest.raises(InputError, match="row 2, column 'patient_id': is missing"):
            cluster_codes(missing)
    with pytest.raises(InputError, match="shape"):
        cluster_codes([])


def test_percentile_interval_is_the_quantiles_of_defined_draws():
    draws = np.random.default_rng(1).normal(size=(1000, 2))
    low, high = percentile_interval(draws, 0.9)
    np.testing.assert_allclose([low, high], np.quantile(draws, [0.05, 0.95], axis=0, method="weibull"))
    some, many = draws.copy(), draws.copy()
    some[:50, 0], many[:51, 0] = np.nan, np.nan
    low, high = percentile_interval(some)
    assert low[0] == np.quantile(some[50:, 0], 0.025, method="weibull")
    low, high = percentile_interval(many)
    assert np.isnan([low[0], high[0]]).all()
    assert np.isfinite([low[1], high[1]]).all()
    assert percentile_interval(draws[:, 0])[0].shape == ()


def test_ends_are_order_statistics_that_leave_out_the_nominal_share():
    """39 draws and one more from the same distribution: the next falls outside the extremes in 2 of 40 cases."""
    assert [float(end) for end in percentile_interval(np.arange(39.0))] == pytest.approx([0, 38])
    assert [float(end) for end in percentile_interval(np.arange(79.0))] == pytest.approx([1, 77])


def test_a_constant_is_not_certain():
    """The sample holds no other case."""
    assert np.isnan(percentile_interval(np.ones(50))).all()
    assert percentile_interval(np.ones(50), points=True) == (1.0, 1.0)


def test_bad_options_say_so():
    with pytest.raises(InputError, match="replicates"):
        cluster_bootstrap(mean_and_total, PATIENT, replicates=0)
    with pytest.raises(InputError, match="seed"):
        cluster_bootstrap(mean_and_total, PATIENT, seed=-1)
    with pytest.raises(InputError, match="level"):
        percentile_interval(np.ones(10), 95)


@pytest.mark.parametrize("clusters", [3, weighted_images.KEPT_PATIENTS + 1])
def test_draws_that_are_kept_are_those_that_are_drawn(clusters):
    codes = np.arange(2 * clusters) % clusters
    drawn = np.bincount(np.random.default_rng([5, 7]).integers(clusters, size=clusters), minlength=clusters)
    for _ in range(2):
        weight = weighted_images.replicate_weight(codes, clusters, 5, 7)
        assert weight.dtype == np.float64
        assert np.array_equal(weight, drawn[codes])
        weight[:] = -1  # what a caller does with it changes no later draw


def rows(numbers):
    return np.array([[number, number**2] for number in numbers], float)


@pytest.mark.parametrize("workers", [None, 1, 2, 5])
def test_rows_come_in_their_order_with_any_number_of_workers(workers):
    told = []
    found = stacked(rows, 1000, 2**15, workers=workers, advance=told.append)
    assert found.tolist() == rows(range(1000)).tolist()
    assert sum(told) == 1000
    assert max(told) == 2  # blocks of 2^16 numbers


def test_two_workers_give_the_scores_of_one_to_the_last_bit(monkeypatch):
    monkeypatch.setattr(weighted_images, "BLOCK", 4000)
    one, two = (rb.score(predictions(), bootstrap=60, workers=k).to_dict() for k in (1, 2))
    assert one == two


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The numbers of scores of each bootstrap that is computed, in a cache of its own for sets of any size."""
    made, compute = [], image_sets.cluster_bootstrap

    def counted(statistic, *given, **settings):
        made.append(len(statistic.scores))
        return compute(statistic, *given, **settings)

    monkeypatch.setattr(image_sets, "cluster_bootstrap", counted)
    monkeypatch.setattr(image_sets, "WORTH_KEEPING", 0)
    monkeypatch.setenv(image_sets.VARIABLE, str(tmp_path / "cache"))
    return made


def test_a_second_command_reads_the_same_bits(tmp_path, calls, monkeypatch):
    file = tmp_path / "p.csv"
    rb.write_predictions(predictions().select(domain="in_domain"), file)

    def scored(*options):
        calls.clear()
        assert run(["score", str(file), "-q", "--bootstrap", "40", "--json", str(tmp_path / "s.json"), *options]) == 0
        return json.loads((tmp_path / "s.json").read_text()), len(calls)

    first, computed = scored()
    assert computed == 1
    assert scored() == (first, 0)
    for path in (tmp_path / "cache").glob("*.npz"):
        path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
    assert scored() == (first, 1)
    assert scored() == (first, 0)
    for options in (["--seed", "1"], ["--threshold", ".4"]):
        assert scored(*options)[1] > 0, options
    monkeypatch.setenv(image_sets.VARIABLE, "")
    assert scored() == (first, 1)
    (tmp_path / "closed").write_text("a file where a folder is needed")
    monkeypatch.setenv(image_sets.VARIABLE, str(tmp_path / "closed"))
    assert scored() == (first, 1)


def test_a_second_report_is_the_same_page_without_the_replicates_of_its_curves(tmp_path, calls, monkeypatch):
    rb.write_predictions(predictions().select(domain="in_domain"), tmp_path / "p.csv")

    def page():
        assert run(["report", str(tmp_path / "p.csv"), "-q", "--bootstrap", "40", "--out", str(tmp_path / "out")]) == 0
        return (tmp_path / "out" / "index.html").read_bytes()

    first = page()
    monkeypatch.setattr(evaluation, "all_curves", None)
    assert page() == first


def test_a_comparison_computes_only_what_score_did_not(calls, monkeypatch):
    a, b = predictions(), predictions(probs=np.random.default_rng(3).random(len(predictions())))

    def compared():
        return rb.compare(a, b, bootstrap=40, sets=["in_domain"], scores=["nll", "brier_skill"]).to_dict()

    rb.score(a, bootstrap=40)
    calls.clear()
    found = compared()
    assert calls == [1, 2]
    monkeypatch.setenv(image_sets.VARIABLE, "")
    assert compared() == found


def test_the_oldest_files_are_deleted(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(image_sets, "MOST_BYTES", 50_000)
    for seed in range(6):
        rb.score(predictions().select(domain="in_domain"), bootstrap=100, seed=seed)
    assert 0 < sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 50_000
