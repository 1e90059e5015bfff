"""The curves of a method's page are means over its seeds."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.reports.leaderboard.figures import curves_of, panels, set_marks
from support.board_entries import noisy


def test_curves_are_means_over_seeds() -> None:
    seeds = [noisy(1.0, seed) for seed in (0, 1)]
    both = curves_of(seeds, "shifted")
    single = [curves_of([one], "shifted") for one in seeds]
    for curve in ("roc", "referral"):
        mean = np.mean([one[curve][1] for one in single], axis=0)
        np.testing.assert_allclose(both[curve][1], mean, equal_nan=True)
    accuracy = np.mean(
        [np.mean((one.prob > 0.5) == one.label) for one in (p.select(domain="shifted") for p in seeds)]
    )
    assert both["referral"][1][0] == pytest.approx(accuracy)


def test_panels_draw_our_sets_and_map_beside_them() -> None:
    curves = {name: curves_of([noisy(1.0)], name) for name in ("in_domain", "shifted")}
    found = panels(curves, curves, "x")
    assert [one.heading for one in found] == ["ROC", "Accuracy after referral", "Reliability"]
    assert all("<svg" in one.svg for one in found)
    assert set_marks(list(curves))["shifted"].hue == 1
