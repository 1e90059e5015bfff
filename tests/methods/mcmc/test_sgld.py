"""SGLD is the sampler without momentum, at a step that becomes constant."""

import pytest

from retinabench.experiments.config import load_run
from retinabench.methods.mcmc import sgld


def test_the_momentum_of_the_optimiser_does_not_apply():
    run = load_run(None, ["method=sgld", "optimizer.momentum=0.9"], data="d")
    assert run.method.momentum(run.optimizer) == 0


def test_the_step_falls_along_a_cosine_and_is_then_constant():
    factor = sgld.Config(lr_factor=0.1).factor(10, [15, 20])
    assert [factor(0), factor(5), factor(10), factor(19)] == pytest.approx([1, 0.55, 0.1, 0.1])
