"""Nominal 95 % intervals by patient hold the truth in about 95 % of simulated studies; those by image do not.

The simulation is `benchmarks/coverage.py`, whose full table stands in `docs/intervals.md`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("coverage_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_patients_cover_and_images_do_not(simulation):
    """200 studies: the SE of a coverage of 95 % is 1.5 %, of one of 80 % 2.8 %, of a bias 7 % of the spread."""
    table, estimates = simulation.coverage(
        200, names=("accuracy", "auroc"), replicates=159, patients=300, populations=1
    )
    for name in ("accuracy", "auroc"):
        assert abs(estimates[name].bias) < 3 * 0.07
        assert 0.93 - 2 * 0.015 <= table[name, "patient percentile"][0] <= 0.97 + 0.015
        assert table[name, "image percentile"][0] <= 0.90
    assert 0.93 - 2 * 0.015 <= table["auroc", "patient Obuchowski"][0] <= 0.97 + 0.015
    assert table["auroc", "image DeLong"][0] <= 0.90


@pytest.mark.slow
def test_intervals_cover_as_the_docs_say(simulation):
    """1,000 studies of 500 patients, those of the table in the docs: the SE of a coverage of 95 % is 0.7 %."""
    table, estimates = simulation.coverage(1000, replicates=299, bca=True)
    assert all(abs(one.bias) < 3 * 0.032 for one in estimates.values())
    for (name, method), (share, *_) in table.items():
        if method.startswith("image"):
            assert share < 0.85
        elif name == "referral_auroc_area":
            assert share >= 0.91  # short of nominal at this size, and the docs say so
        else:
            assert 0.93 <= share <= 0.97


@pytest.mark.slow
def test_the_auroc_area_is_covered_where_there_are_more_patients(simulation):
    """600 studies of 2,000 patients: the SE of a coverage of 95 % is 0.9 %."""
    table, _ = simulation.coverage(600, ("referral_auroc_area",), replicates=199, patients=2000)
    assert 0.93 - 2 * 0.009 <= table["referral_auroc_area", "patient percentile"].share <= 0.97 + 0.009
    assert table["referral_auroc_area", "image percentile"].share < 0.85
