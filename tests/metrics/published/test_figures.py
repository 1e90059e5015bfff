"""What the released code does with several runs, and the lines that it draws."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conftest import shared_path
from retinabench.metrics.classification import Roc
from retinabench.metrics.published import figures
from support.drawn_lines import drawn_line

METRICS = ("accuracy", "nll", "auroc", "auprc")


def golden(name):
    return np.load(shared_path("golden", "retina", f"{name}.npz"))


def golden_json(name):
    return json.loads(shared_path("golden", "retina", f"{name}.json").read_text())


def test_aggregate_over_seeds():
    z = golden_json("seed_aggregation")
    for line in z["out_tsv"].splitlines()[1:]:
        name, *truth = line.split("\t")
        found = figures.aggregate([row[name] for row in z["inputs"]])
        assert found == pytest.approx([float(x) for x in truth], abs=1e-15)


@pytest.mark.parametrize("kind", ["plain", "oracle"])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("metric", METRICS)
def test_drawn_lines(metric, flag, kind):
    z = golden("referral_plot_lines")
    x, y = drawn_line(z[f"in_{kind}_retention_{metric}_arr"], metric, no_oracle=flag)
    name = f"out_{kind}_noOracleFlag{flag}_retention_{metric}_arr"
    np.testing.assert_allclose(x, z[f"{name}_x"], atol=1e-12)
    np.testing.assert_allclose(y, z[f"{name}_y"], atol=1e-12)


def test_a_roc_curve_is_read_at_the_nearest_point():
    curve = Roc(np.array([0, 0.1, 0.5, 1]), np.array([0, 0.6, 0.8, 1.0]), np.array([np.inf, 0.7, 0.5, 0.1]))
    found = figures.sensitivity_at_nearest(curve, np.arange(0, 1.02, 0.02))
    assert found[2] == 0  # 0.04 is nearer to 0 than to 0.1
    assert found[4] == 0.6
    assert found[[0, -1]].tolist() == [0, 1]


def test_means_over_seeds_by_hand():
    mean, variance, error = figures.aggregate([1.0, None, 3.0])
    assert (mean, variance, error) == pytest.approx((2.0, 1.0, 1 / np.sqrt(2)))


def test_a_drawn_line_takes_the_oracle_off_again_and_loses_its_end():
    curves = np.full((2, 200), 0.9)
    x, y = drawn_line(curves, "accuracy")
    referred = np.arange(200) / 200
    np.testing.assert_allclose(x, referred[:100])
    np.testing.assert_allclose(y, ((0.9 - referred) / (1 - referred))[:100])
    x, y = drawn_line(curves, "nll", no_oracle=False)
    assert len(x) == 190
    np.testing.assert_allclose(y, 0.9)
