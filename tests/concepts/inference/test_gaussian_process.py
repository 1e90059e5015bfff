"""The Gaussian process against golden values, scikit-learn and the closed form; bins and outcomes at their borders."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinabench.concepts.inference.gaussian_process import (
    CENTRES,
    GRID,
    PUBLISHED,
    Kernel,
    Performance,
    bin_of,
    fit_kernel,
    log_evidence,
    outcomes,
    posterior,
)


@pytest.fixture
def golden(shared):
    return json.loads(shared("golden", "evaluation", "vtt_outputs.json").read_text())


@pytest.mark.parametrize(
    "case",
    ["empty", "one_bin_a0.10_y1", "one_bin_a0.10_y5", "one_bin_a0.50", "tn_fp_fn_tp", "dense_negative"],
)
def test_golden_posteriors(golden, case):
    one = golden[case]
    model = Performance(places=np.array(one["x"]))
    for place, count in enumerate(one["y"]):
        assert [model.add(place) for _ in range(count)] == [True] + [False] * (count - 1)
    for a in one["mean"]:
        place = round(100 * float(a))
        assert model.mean()[place] == pytest.approx(one["mean"][a], abs=1e-12)
        assert model.variance()[place] == pytest.approx(one["var"][a], abs=1e-12)
    for reading, key in (("variance", "variance_as_printed"), ("std", "std_as_described")):
        assert model.uncertainty(reading) == pytest.approx(one[f"u_minus,u_plus {key}"], abs=1e-12)


def test_golden_floors(shared):
    floors = json.loads(shared("golden", "evaluation", "extra_outputs.json").read_text())["vtt_floor"]
    occupied = {
        "all_100_bins": np.arange(100),
        "all_50_negative": np.arange(50),
        "TN_and_TP_only": np.r_[0:25, 75:100],
    }
    for name, places in occupied.items():
        counts = np.zeros(100, np.int64)
        counts[places] = 3
        model = posterior(counts)
        assert model.uncertainty("variance") == pytest.approx(floors["variance_as_printed"][name], abs=1e-10)
        assert model.uncertainty("std") == pytest.approx(floors["std_as_described"][name], abs=1e-10)


def test_golden_bins(golden):
    for case, one in golden["bins"].items():
        truth, prob = (float(part.split("=")[1]) for part in case.split(","))
        place = bin_of(int(truth), prob)
        if prob == 0.5:  # a yes in the golden file, a no in `metrics`
            continue
        assert place == one["bin"]
        assert ("TN", "FP", "FN", "TP")[place // 25] == one["outcome"]


@given(st.integers(0, 1), st.one_of(st.floats(0, 1), st.sampled_from([np.nextafter(0.5, 0), 0.5, 1.0])))
def test_the_quarter_of_a_bin_is_the_outcome(truth, prob):
    right, says_yes = (prob > 0.5) == bool(truth), prob > 0.5
    assert bin_of(truth, prob) // 25 == {(1, 0): 0, (0, 1): 1, (0, 0): 2, (1, 1): 3}[right, says_yes]


def test_outcomes_are_sums_of_bins():
    bins = np.random.default_rng(0).integers(0, 9, 100)
    sums = [int(bins[k : k + 25].sum()) for k in (0, 25, 50, 75)]
    assert outcomes(bins) == dict(zip(("tn", "fp", "fn", "tp"), sums, strict=True))


def refitted(counts, kernel=PUBLISHED):
    """Mean and standard deviation on the grid, by scikit-learn."""
    process = pytest.importorskip("sklearn.gaussian_process")
    places = np.flatnonzero(counts)
    shape = process.kernels.ConstantKernel(kernel.signal, "fixed") * process.kernels.RBF(
        kernel.length, "fixed"
    )
    model = process.GaussianProcessRegressor(shape, alpha=kernel.noise, optimizer=None)
    model.fit(CENTRES[places, None], counts[places])
    return model.predict(GRID[:, None], return_std=True)


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=150),
    st.sampled_from([PUBLISHED, Kernel(40.0, 3.0, 0.21), Kernel(2.0, 0.5, 0.03)]),
)
@settings(deadline=None, max_examples=25)
def test_incremental_updates_equal_scikit_learn(places, kernel):
    model = Performance(kernel)
    for place in places:
        model.add(place)
    mean, sd = refitted(model.counts, kernel)
    scale = max(1.0, float(model.counts.max()))
    assert model.mean() == pytest.approx(mean, abs=1e-10 * scale)
    assert model.variance() == pytest.approx(sd**2, abs=1e-10 * kernel.signal)
    halves = [sd[:51], sd[50:]]
    for reading, power in (("std", 1), ("variance", 2)):
        by_hand = [4 * np.trapezoid(half**power, dx=0.01) for half in halves]
        assert model.uncertainty(reading) == pytest.approx(by_hand, abs=1e-7)  # the root of a variance near 0


def test_all_bins_in_a_random_order_keep_the_precision():
    random = np.random.default_rng(3)
    model = Performance()
    for place in random.permutation(100).tolist() + random.integers(0, 100, 10_000).tolist():
        model.add(place)
    mean, sd = refitted(model.counts)
    assert np.abs(model.mean() - mean).max() < 1e-10 * model.counts.max()
    assert np.abs(model.variance() - sd**2).max() < 1e-10


def test_the_fitted_kernel_reaches_the_evidence_of_scikit_learn():
    process = pytest.importorskip("sklearn.gaussian_process")
    random = np.random.default_rng(0)
    counts = random.poisson(
        30 * np.exp(-((CENTRES - 0.2) ** 2) / 0.02) + 20 * np.exp(-((CENTRES - 0.9) ** 2) / 0.01)
    )
    places = np.flatnonzero(counts)
    fitted = fit_kernel(counts)
    shape = process.kernels.ConstantKernel(100.0, (1e-4, 1e6)) * process.kernels.RBF(0.1, (0.01, 1.0))
    shape = shape + process.kernels.WhiteKernel(10.0, (1e-4, 1e6))
    model = process.GaussianProcessRegressor(shape, alpha=0.0, n_restarts_optimizer=3, random_state=0)
    model.fit(CENTRES[places, None], counts[places])
    assert log_evidence(counts, fitted) == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-3)
    assert log_evidence(counts, fitted) > log_evidence(counts, PUBLISHED)
    theirs = np.exp(model.kernel_.theta)  # signal, length, noise
    assert [fitted.signal, fitted.length, fitted.noise] == pytest.approx(theirs, rel=0.02)


def test_too_few_bins_keep_the_published_kernel():
    counts = np.zeros(100, np.int64)
    counts[[3, 70]] = 5
    assert fit_kernel(counts) == PUBLISHED
