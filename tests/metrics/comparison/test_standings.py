"""Ranks of methods with several seeds: what is resolved, and what counts as an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import retinabench as rb
from retinabench.metrics.comparison.standings import _with_seeds, standings


def seeds(signal, count, spread=0.3, first=0, images=240):
    """Seeds of a method on the same images: `spread` is the noise of a seed."""
    common = np.random.default_rng(7)
    label = (np.arange(images) % 3 == 0).astype(int)
    noise = common.normal(size=images)
    found = []
    for seed in range(first, first + count):
        z = signal * (2 * label - 1) + noise + spread * np.random.default_rng([99, seed]).normal(size=images)
        patient = np.repeat([f"p{k}" for k in range(images // 2)], 2)
        found.append(
            rb.Predictions(
                [f"i{k}" for k in range(images)],
                label,
                1 / (1 + np.exp(-z)),
                patient_id=patient,
                metadata={"seed": seed},
            )
        )
    return found


def test_a_resolved_difference_ranks_and_an_unresolved_one_ties() -> None:
    methods = {"worst": seeds(0.2, 3), "good": seeds(1.6, 3, first=3), "too": seeds(1.6, 3, first=6)}
    found = standings(methods, ["auroc"], bootstrap=200)["in_domain"]["auroc"]
    assert [(found.methods[name].rank, found.methods[name].worst) for name in ("good", "too", "worst")] == [
        (1, 2),
        (1, 2),
        (3, 3),
    ]
    assert list(found.methods)[-1] == "worst", "the best value comes first"
    assert found.better() == {("good", "worst"), ("too", "worst")}
    pair, turned = found.pair("good", "worst"), found.pair("worst", "good")
    assert pair is not None
    assert turned is not None
    assert (turned.difference, turned.low, turned.high) == (-pair.difference, -pair.high, -pair.low)


def test_the_value_is_the_mean_over_seeds_and_one_seed_is_its_own_score() -> None:
    files = seeds(1.0, 3)
    found = standings({"three": files, "one": files[:1]}, ["auroc", "nll"], bootstrap=100)["in_domain"]
    values = [rb.score(one, bootstrap=0)["in_domain"].auroc.value for one in files]
    assert found["auroc"].methods["three"].value == pytest.approx(np.mean(values), abs=1e-12)
    assert found["auroc"].methods["three"].error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    alone = rb.score(files[0], bootstrap=100)["in_domain"].auroc
    assert (found["auroc"].methods["one"].low, found["auroc"].methods["one"].high) == (alone.low, alone.high)
    assert np.isnan(found["auroc"].methods["one"].error)


def test_variances_of_patients_and_seeds_add_with_the_degrees_of_freedom_of_welch() -> None:
    a, b = np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.45])
    error, degrees = _with_seeds(0.02, 50.0, a, b, paired=False)
    parts = [0.02**2, a.var(ddof=1) / 3, b.var(ddof=1) / 2]
    assert error == pytest.approx(np.sqrt(sum(parts)))
    assert degrees == pytest.approx(
        sum(parts) ** 2 / (parts[0] ** 2 / 50 + parts[1] ** 2 / 2 + parts[2] ** 2 / 1)
    )
    # Without an error over patients it is Welch's test of the seeds.
    tiny, welch = _with_seeds(1e-12, 50.0, a, b, paired=False)
    oracle = stats.ttest_ind(a, b, equal_var=False)
    assert 2 * stats.t.sf(abs(a.mean() - b.mean()) / tiny, welch) == pytest.approx(oracle.pvalue)


def test_methods_on_the_same_networks_are_paired_by_seed() -> None:
    a, b = np.array([0.5, 0.7, 0.9]), np.array([0.49, 0.69, 0.89])
    assert _with_seeds(0.01, 50.0, a, b, paired=True)[0] == pytest.approx(0.01, abs=1e-9)
    assert _with_seeds(0.01, 50.0, a, b, paired=False)[0] > 0.1


def test_nothing_is_resolved_without_replicates_or_against_itself() -> None:
    files = seeds(1.0, 2)
    renamed = [replace(one, metadata={"seed": k + 5}) for k, one in enumerate(files)]
    for bootstrap in (0, 50):
        found = standings({"a": files, "b": renamed}, ["accuracy"], bootstrap=bootstrap)["in_domain"][
            "accuracy"
        ]
        assert not found.better()
        assert {(one.rank, one.worst) for one in found.methods.values()} == {(1, 2)}
