"""Mean-field variational inference (Graves 2011, Blundell et al. 2015): an independent Gaussian for every weight.

**Idea.** Every weight of a convolution or linear layer gets an independent Gaussian; training fits its mean and
its standard deviation. Biases and norms stay points.

**Equation.** q(w) = Π N(w; μ, σ²), σ = log(1 + exp ρ), minimises

    E_q[CE(y, f_w(x))] + T a(t) KL(q ‖ p) / N,     KL = Σ log(τ/σ) + (σ² + (μ - m)²) / 2τ² - 1/2

N training images, T the temperature, a(t) the annealing. The cross-entropy is MAP's, class weights included.
The gradient is estimated by flipout: each image sees the perturbation σ ∘ ε with random signs of its own, which
leaves mean and variance as they are and makes the images' noise uncorrelated. At prediction a sample is one
weight for all images: one network.

**Settings** (`method.…`). `stddev_mean_init` 0.001 and `stddev_stddev_init` 0.1: the initial σ and its spread
on the scale of ρ. `prior_mean` `tied` (m = μ, published: the KL leaves the means to the L2 term) or `zero`;
`prior_stddev` τ, by default sqrt(2 / fan-in). `kl_temperature` 1. `annealing`: `linear` (1 from half of the
training on), `cyclical` (four rises; Fu et al. 2019), `linear_released`, `none`. `estimator` `flipout` or
`reparameterised`. `train_samples` 1, `samples` 5.

**As published.** `annealing = "linear_released"`: the released code divides by 200 epochs and trains 90, so the
KL's weight ends at 0.45. The paper calls the schedule cyclical and cites Bowman et al. 2015 for it, whose
schedule rises once. `optimizer.l2_on = "norms_and_biases"`: the released L2 term left the means alone.

**Cost.** Two weights for one; a training step has two convolutions for one and draws as many normals as there
are weights. A prediction with S samples is S passes; S draws of all weights serve all its batches (up to 1 GiB,
beyond which each batch draws them anew).

**When it fails.** The KL's gradient of ρ is about 1 / N for each weight: with few steps σ stays near where it
starts, and the reported uncertainty is the initial one. Look at `loss_kl` in `metrics.jsonl`: if it does not
fall, choose σ with care or train longer. With a tied mean, larger weights are free, and under batch norm they
make the relative noise smaller. With `zero`, the bound itself (T = 1) underfits small data sets.

**Tested.** The KL equals the released code's to five digits; linear regression reaches the exact mean-field
optimum (mean of the posterior, variance 1 / diagonal of its precision), logistic regression the optimum found
by quadrature; flipout's gradient has the variance of one shared weight divided by about 10 for μ and 2.5 for ρ
with 64 rows; ResNet-50 has 54 terms and 47,020,161 values, as the reference counts (46,967,041 parameters and
53,120 running statistics).

**Source.** Graves 2011; Blundell et al. 2015; Wen et al. 2018; Band et al. 2021 (Retina Benchmark).
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.variational.elbo import WeightConfig, around_weights, elbo
from retinabench.models.stochastic.variational import FAMILIES


class Config(WeightConfig):
    """The options shared with radial, and no other (`methods/variational.py`)."""

    title = "MFVI"

    name: Literal["mfvi"] = "mfvi"

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        variance, std = optimizer.prior_variance(points), self.prior_stddev
        if optimizer.l2_on != "everything":
            return optimizer.target(
                points, ""
            )  # the biases and norms, which are points, have their prior in the L2 term
        if self.prior_mean != "zero" or std is None:
            return no_target("a prior that follows the means, or the width of a layer")
        if self.annealing == "linear_released":
            return no_target("the weight of the divergence depends on the number of epochs")
        if abs(std**2 / variance - 1) > 1e-6:
            return no_target(f"two priors: variance {std**2:.3g} of weights, {variance:.3g} of biases")
        how = "the best independent Gaussian of the weights, biases and norms as points"
        return TargetPosterior(self.kl_temperature, variance, how)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put Gaussians around the weights and return the posterior."""
    network = around_weights(model, as_config(run, Config), FAMILIES["gaussian"], run.seed)
    return SampledPosterior(network, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put Gaussians around the weights, train them and return the posterior."""
    posterior = build(model, run, likelihood)
    objective = elbo(posterior, batches, run, as_config(run, Config))
    return train(posterior, batches, run, checkpoint, objective=objective)


FIDELITY = (
    FidelitySettings(
        name="mfvi",
        title="MFVI",
        method={
            "name": "mfvi",
            "samples": 100,
            "annealing": "none",
            "prior_mean": "zero",
            "prior_stddev": "prior_std",
        },
        optimizer={"name": "adam", "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.00073}, "method": {"stddev_mean_init": 0.016}},
        gaussian={"optimizer": {"lr": 0.0061}, "method": {"stddev_mean_init": 0.0056}},
        search={
            "categorical": {
                "method.stddev_mean_init": log_range(0.005, 0.1),
                "optimizer.lr": log_range(0.0005, 0.01),
            },
            "gaussian": {
                "method.stddev_mean_init": log_range(0.005, 0.1),
                "optimizer.lr": log_range(0.001, 0.03),
            },
        },
    ),
)
