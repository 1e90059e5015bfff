"""Histograms of entropy by grade: right and wrong predictions, of all runs of a method."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.metrics.uncertainty import binary_entropy
from retinabench.reports.papers.figures.histograms import EDGES, MOST, _densities, figures
from support.fake_predictions import population
from support.written_papers import gathered, run

PEOPLE = population(240, 160)


def test_densities_pool_the_runs_and_tell_right_from_wrong(tmp_path):
    runs = [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(2)]
    (results,) = gathered(tmp_path, runs).results
    right, wrong, rights, wrongs = _densities(results.methods[0], "in_domain", 0)
    rows = (PEOPLE["domain"] == "in_domain") & (PEOPLE["grade"] == 0)
    prob = np.concatenate([one.prob[rows] for one in runs])
    assert rights + wrongs == len(prob)
    assert wrongs == (prob > 0.5).sum()  # grade 0 is not referable
    expected, _ = np.histogram(binary_entropy(prob[prob <= 0.5]), EDGES)
    assert right == pytest.approx(expected / rights / np.diff(EDGES))
    assert (wrong * np.diff(EDGES)).sum() == pytest.approx(1)


def test_many_methods_are_spread_over_several_figures(tmp_path):
    runs = [run("MAP", 0, PEOPLE, task="country_shift") for _ in range(MOST + 1)]
    for k, one in enumerate(runs):
        one.metadata.update(title=f"method {k}", seed=k)
    (results,) = gathered(tmp_path, runs).results
    names = [figure.name for figure in figures(results)[0]]
    assert names[:2] == [
        "figure-10-uncertainty-in-domain-single-country-shift",
        "figure-10-uncertainty-in-domain-single-country-shift-2",
    ]
