"""Curves of runs are read on common grids, averaged and cut where few images remain."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.metrics.classification import grade_weight, roc_curve, sensitivity_on_chords
from retinabench.metrics.scoring import referral_curve
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import Cases
from retinabench.reports.papers.curves import GRID, RATES, retained_weight
from support.fake_predictions import population
from support.written_papers import gathered, run

PEOPLE = population(240, 160)


def test_roc_curves_are_averaged_over_runs(tmp_path):
    runs = [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(3)]
    (study,) = gathered(tmp_path, runs).results
    parts = [one.select(domain="shifted") for one in runs]
    mean = np.mean(
        [sensitivity_on_chords(roc_curve(p.label, p.prob), RATES["corrected"]) for p in parts], axis=0
    )
    drawn = np.mean([r.curves.roc["shifted", 1.0] for r in study.methods[0].runs], axis=0)
    np.testing.assert_allclose(drawn, mean, atol=1e-12)


def test_referral_curves_are_read_on_a_grid_and_end_where_few_remain(tmp_path):
    one = run("MC dropout", 0, PEOPLE, task="country_shift")
    (study,) = gathered(tmp_path, [one]).results
    part = one.select(domain="in_domain")
    whole = referral_curve(part.label, part.prob, referral_uncertainty(part)[0], "accuracy")
    drawn = study.methods[0].runs[0].curves.referral["in_domain", "accuracy"]
    assert drawn[50] == pytest.approx(whole.at(0.5), abs=1e-12)
    kept = 240 * (1 - GRID)
    assert np.isnan(drawn[kept < 11.9]).all()  # fewer than a twentieth, 12
    assert np.isfinite(drawn[kept > 13]).all()


def test_the_class_balanced_set_has_the_grades_of_eyepacs(tmp_path):
    one = run("MAP", 0, PEOPLE, task="country_shift")
    (study,) = gathered(tmp_path, [one]).results
    part = one.select(domain="shifted")
    curve = roc_curve(part.label, part.prob, grade_weight(part.grade))
    expected = sensitivity_on_chords(curve, RATES["corrected"])
    np.testing.assert_allclose(study.methods[0].runs[0].curves.roc["rebalanced", 1.0], expected, atol=1e-12)


def test_retained_images_share_ties():
    w = Cases([0, 1, 0, 1], [0.1, 0.9, 0.4, 0.6], [0.1, 0.2, 0.3, 0.3]).weighted()
    assert retained_weight(w, 0.75).tolist() == [1, 1, 0.5, 0.5]
    assert retained_weight(w, 0.5).tolist() == [1, 1, 0, 0]
    assert retained_weight(w, 1.0).tolist() == [1, 1, 1, 1]
