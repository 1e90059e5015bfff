"""Gaps between groups, and what to expect at a new site."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from retinabench.metrics.clinical.between_groups import between_groups, new_site, random_effects
from retinabench.metrics.proportions import Interval, clustered_proportion

# Events and non-events with and without vaccination in the 13 trials of Colditz et al., JAMA 271:698 (1994).
BCG = np.array([
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761), (180, 1361, 372, 1079),
    (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232), (17, 1699, 65, 1600), (186, 50448, 141, 27197),
    (5, 2493, 3, 2338), (27, 16886, 29, 17825),
], float)  # fmt: skip


def test_random_effects_of_a_published_example():
    a, b, c, d = BCG.T
    y = np.log(a / (a + b)) - np.log(c / (c + d))
    v = 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)
    tau2, mean, error = random_effects(y, v)
    assert tau2 == pytest.approx(0.3181, abs=5e-5)  # Paule and Mandel's, as the R package metafor publishes it
    w = 1 / (v + tau2)
    assert mean == pytest.approx(w @ y / w.sum())
    assert error == pytest.approx(w.sum() ** -0.5)  # Hartung and Knapp's factor is 1 at this tau^2


def test_equal_sites_have_no_spread():
    tau2, mean, error = random_effects(np.full(4, 0.7), np.full(4, 0.04))
    assert (tau2, mean, error) == (0.0, pytest.approx(0.7), pytest.approx(0.1))


def test_the_interval_of_a_new_site_holds_its_rate():
    """Ten sites of 150 patients, std .5 on the logit scale: 95 % nominal; 400 studies know the share to 1.1 points."""
    rng, held = np.random.default_rng(7), 0
    for _ in range(400):
        *sites, new = expit(rng.normal(1.5, 0.5, 11))
        rates = [clustered_proportion(rng.random(150) < p, np.ones(150), np.arange(150)) for p in sites]
        found = new_site(rates).new_site
        held += found.low <= new <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_the_gap_is_that_of_the_outermost_intervals():
    together = {"a": Interval(0.9, 0.8, 0.95), "b": Interval(0.6, 0.5, 0.7), "c": Interval(0.8, 0.6, 0.9)}
    found = between_groups("camera", "sensitivity", together, together)
    assert (found.lowest, found.highest) == ("b", "a")
    assert [found.gap.value, found.gap.low, found.gap.high] == pytest.approx([0.3, 0.1, 0.45])
    assert found.new_site is not None
    assert between_groups("sex", "sensitivity", together, together).new_site is None  # nobody meets a new sex
    assert between_groups("camera", "sensitivity", {"a": together["a"]}) is None
