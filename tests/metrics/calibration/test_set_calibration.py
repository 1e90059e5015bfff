"""The calibration of a set against its definitions and a known truth."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb

KEYS = (
    "line_intercept line_slope line_in_the_large line_observed_over_expected line_intercept_low line_intercept_high "
    "line_slope_low line_slope_high line_in_the_large_low line_in_the_large_high line_observed_over_expected_low "
    "line_observed_over_expected_high brier_reliability brier_resolution brier_uncertainty brier_within_bin brier_skill "
    "null_ece_top_label_mean null_ece_top_label_low null_ece_top_label_high calibration_error_top_label "
    "calibration_error_top_label_low calibration_error_top_label_high null_ece_positive_class_mean "
    "null_ece_positive_class_low null_ece_positive_class_high calibration_error_positive_class "
    "calibration_error_positive_class_low calibration_error_positive_class_high"
)


def scored(images: int, bend: float = 1.0) -> tuple[rb.SetScores, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    p = rng.uniform(0.05, 0.95, images)
    truth = 1 / (1 + (1 / p - 1) ** bend)  # logit P(y) = bend logit(p)
    y = (rng.random(images) < truth).astype(int)
    return rb.score(rb.Predictions(np.arange(images), y, p), bootstrap=0)["in_domain"], y, p


def test_the_json_is_flat_and_every_number_is_the_one_of_its_definition():
    found, y, p = scored(500)
    content = found.to_dict()["calibration"]
    assert list(content) == KEYS.split()
    parts = [content[f"brier_{part}"] for part in ("reliability", "resolution", "uncertainty", "within_bin")]
    assert parts[0] - parts[1] + parts[2] + parts[3] == pytest.approx(np.mean((p - y) ** 2))
    assert content["line_observed_over_expected"] == pytest.approx(y.sum() / p.sum())
    assert content["line_slope_high"] == found.calibration.line_slope.high
    assert content["null_ece_top_label_mean"] == found.calibration.null_ece_top_label.value


@pytest.mark.parametrize("bend", [1.0, 0.5])
def test_intervals_hold_the_truth(bend):
    """20,000 images, seed 4: the slope has a standard error of about .014, and its 95 % interval holds the true one."""
    found, _, _ = scored(20_000, bend)
    line, null = found.calibration.line_slope, found.calibration.null_ece_positive_class
    assert line.low < bend < line.high
    assert line.high - line.low < 0.1
    assert null.low < null.value < null.high
    assert (found["ece_positive_class"].value > 2 * null.high) == (bend != 1)
