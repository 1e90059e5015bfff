"""SGHMC is the sampler with the optimiser's momentum; `test_langevin.py` and `test_sgmcmc.py` measure what it samples."""

from retinabench.experiments.config import load_run
from retinabench.methods.mcmc import sghmc, sgmcmc


def test_the_momentum_is_the_optimisers():
    run = load_run(None, ["method=sghmc", "optimizer.momentum=0.8"], data="d")
    assert run.method.momentum(run.optimizer) == 0.8
    assert isinstance(run.method, sgmcmc.ConstantStepConfig)
    assert (sghmc.build, sghmc.fit) == (sgmcmc.build, sgmcmc.fit)
