"""Calibration errors, diagrams, lines and the parts of the Brier score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from retinabench.core.errors import InputError
from retinabench.metrics.calibration import binned as c
from retinabench.metrics.sorted_images import Cases
from support.shared_inputs import answers, cases_of, images

GOLDEN = {
    "ece_top_width15": ("top_label", "width", 15),
    "ece_top_width10": ("top_label", "width", 10),
    "ece_pos_width15": ("positive_class", "width", 15),
    "ece_pos_width10": ("positive_class", "width", 10),
    "ece_top_mass15": ("top_label", "mass", 15),
    "ece_pos_mass15": ("positive_class", "mass", 15),
}


def truth():
    return answers("own_outputs")["calibration_n400"]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_ece(name):
    y, p, _ = cases_of("n400")
    of, spacing, bins = GOLDEN[name]
    found = c.reliability(y, p, of=of, spacing=spacing, bins=bins).expected_error()
    assert found == pytest.approx(truth()[name], abs=1e-12)


def test_named_scores_are_fifteen_bins_of_equal_width():
    from retinabench.metrics.registry import SCORES

    y, p, u = cases_of("n400")
    w = Cases(y, p, u).weighted()
    assert SCORES["ece_top_label"](w) == pytest.approx(truth()["ece_top_width15"], abs=1e-12)
    assert SCORES["ece_positive_class"](w) == pytest.approx(truth()["ece_pos_width15"], abs=1e-12)


def test_golden_murphy():
    y, p, _ = cases_of("n400")
    found, t = c.murphy_of(Cases(y, p).weighted()), truth()
    assert found.brier == pytest.approx(t["brier"], abs=1e-12)
    assert found.skill == pytest.approx(t["brier_skill"], abs=1e-12)
    for name in ("reliability", "resolution", "uncertainty", "within_bin"):
        assert getattr(found, name) == pytest.approx(t["murphy10"][name], abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(case=images())
def test_repetition_and_row_order(case):
    y, p, _, w = case
    times = np.floor(w).astype(int)
    if times.sum() == 0:
        return
    order = np.random.default_rng(0).permutation(len(y))
    for of in ("top_label", "positive_class"):
        for spacing in ("width", "mass"):
            args = {"of": of, "spacing": spacing, "bins": 4}
            a = c.reliability(y, p, times, **args)
            b = c.reliability(np.repeat(y, times), np.repeat(p, times), **args)
            d = c.reliability(y[order], p[order], times[order], **args)
            for other in (b, d):
                np.testing.assert_allclose(a.weight, other.weight, atol=1e-9)
                assert a.expected_error() == pytest.approx(other.expected_error(), abs=1e-12)


def test_edges_belong_to_the_bin_below():
    found = c.reliability([0, 1, 1, 0], [0.0, 0.2, 0.2 + 1e-12, 1.0], bins=5)
    assert found.weight.tolist() == [2, 1, 0, 0, 1]
    assert np.isnan(found.forecast[2])
    assert found.expected_error() == pytest.approx((2 * 0.4 + 1 * (1 - 0.2) + 1) / 4, abs=1e-9)


def test_unknown_words():
    for bad in ({"of": "top"}, {"spacing": "equal"}, {"bins": 0}):
        with pytest.raises(InputError):
            c.reliability([0, 1], [0.1, 0.9], **bad)


def test_errors_of_three_bins_by_hand():
    """Bins (0, 1/3], (1/3, 2/3], (2/3, 1] hold 2, 1 and 3 images; gaps: 1/2 - 0.2, 0 - 0.5 and 2/3 - 0.8."""
    diagram = c.reliability([0, 1, 0, 1, 1, 0], [0.1, 0.3, 0.5, 0.7, 0.8, 0.9], bins=3)
    gaps = np.array([0.3, -0.5, 2 / 3 - 0.8])
    np.testing.assert_allclose(diagram.gap, gaps, atol=1e-15)
    share = np.array([2, 1, 3]) / 6
    assert diagram.expected_error() == pytest.approx(share @ abs(gaps))


def test_the_parts_of_the_brier_score_by_hand():
    parts = c.murphy_of(Cases([0, 1, 0, 1], [0.2, 0.2, 0.8, 0.8]).weighted(), bins=2)
    assert parts.reliability == pytest.approx(0.09)  # both bins observe 1/2, at 0.2 and at 0.8
    assert parts.resolution == pytest.approx(0, abs=1e-15)
    assert parts.uncertainty == pytest.approx(0.25)
    assert parts.within_bin == pytest.approx(0, abs=1e-15)
    assert parts.brier == pytest.approx((0.04 + 0.64 + 0.64 + 0.04) / 4)
    assert parts.skill == pytest.approx(1 - 0.34 / 0.25)
