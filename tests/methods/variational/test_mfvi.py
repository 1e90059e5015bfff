"""MFVI as a method: what it builds, and what it says of its target; `test_elbo.py` has the objective."""

import pytest
import torch

from retinabench.experiments.config import load_run
from retinabench.methods.training.likelihood import Gaussian
from retinabench.methods.variational import mfvi
from retinabench.models.stochastic.variational import Variational
from support.linear_gaussian import LinearGaussian


def test_the_weights_of_layers_become_gaussians_around_the_networks():
    run = load_run(
        None, ["method=mfvi", "method.stddev_mean_init=0.3", "method.stddev_stddev_init=0"], data="d"
    )
    posterior = mfvi.build(LinearGaussian(), run, Gaussian())
    (layer,) = [one for one in posterior.model.modules() if isinstance(one, Variational)]
    assert layer.weight.shape == (1, 2)
    x = torch.tensor([[1.0, 2.0]])
    drawn = posterior.predict(x, 2000, torch.Generator().manual_seed(0))[:, 0, 0]
    # Variance s² |x|² = 0.45; 2,000 draws, four standard errors.
    assert float(drawn.var()) == pytest.approx(0.45, rel=4 * (2 / 2000) ** 0.5)
    assert float(drawn.mean()) == pytest.approx(0, abs=4 * (0.45 / 2000) ** 0.5)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["method.prior_mean=tied"], "follows the means"),
        (
            ["method.prior_mean=zero", "method.prior_stddev=1", "method.annealing=linear_released"],
            "number of epochs",
        ),
        (["method.prior_mean=zero", "method.prior_stddev=0.1"], "two priors"),
    ],
)
def test_what_has_no_single_target_says_why(words, why):
    stated = ["optimizer.l2=0.005", "optimizer.l2_on=everything"]  # variance 1 at 100 points
    run = load_run(None, ["method=mfvi", *stated, *words], data="d")
    found = run.method.target_posterior(run.optimizer, 100)
    assert found.temperature is None
    assert why in found.how
