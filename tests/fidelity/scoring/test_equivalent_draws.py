"""Independent draws of a posterior, counted by their distance from the reference."""

import numpy as np
import pytest

from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.scoring.equivalent_draws import COUNTS, DrawCurve, draw_curve
from retinabench.fidelity.targets.registry import TARGETS
from support.fake_reference import classified


def test_the_figures_of_fundus_are_those_that_were_found_independently():
    # Found with another program: .467, .215, .151 and .105. With 200 sets of one draw, 40 of five and 16 of more, whose standard
    # deviations are 6 to 9 % each, three standard errors are 2 to 6 %.
    fundus = TARGETS["fundus"]
    reference = read_reference(fundus, fundus.sha256)
    curve = draw_curve(reference, np.arange(1000), 0.031)
    known = dict(zip(COUNTS, curve.distance, strict=True))
    for count, distance in ((1, 0.467), (5, 0.215), (10, 0.151), (20, 0.105)):
        assert known[count] == pytest.approx(distance, rel=0.06)
    assert curve.draws(0.291) == pytest.approx(2.7, rel=0.1)  # MAP
    assert curve.draws(0.37) < 2  # mean field
    assert curve.most == pytest.approx(227, rel=0.15)  # the reference's own effective draws


def test_n_draws_are_worth_n_draws():
    reference = classified(100, 5, samples=200)
    curve = draw_curve(reference, np.arange(100), 0.001)
    random = np.random.default_rng(3)
    for count in (3, 30):
        found = [
            distances.total_variation(
                reference.samples[random.integers(200, size=count)].mean(axis=0), reference.probs
            )
            for _ in range(20)
        ]
        assert curve.draws(float(np.mean(found))) == pytest.approx(count, rel=0.1)


def test_beyond_its_ends_the_curve_falls_as_one_over_the_root():
    curve = DrawCurve(tuple(1 / np.sqrt(COUNTS)), 0.01)
    assert [curve.draws(value) for value in (2.0, 1.0, 0.5, 0.02, 0.01)] == pytest.approx(
        [0.25, 1, 4, 2500, 10_000]
    )
    assert curve.draws(0.001) == curve.most == pytest.approx(10_000)
