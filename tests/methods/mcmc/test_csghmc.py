"""Cyclical SGHMC: the step falls and is raised again; every cycle ends in a sample."""

import pytest

from retinabench.methods.mcmc import csghmc


def test_the_step_of_a_cycle_is_a_cosine_from_1_to_0():
    factor = csghmc.Config().factor(10, [14, 18])
    assert [factor(step) for step in (0, 9, 10, 12, 14, 16)] == pytest.approx([1, 1, 1, 0.5, 1, 0.5])
    assert 0 < factor(13) < 0.15
