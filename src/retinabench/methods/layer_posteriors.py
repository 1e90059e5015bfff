"""MFVI, radial and rank-1: networks whose layers have a posterior, trained by the evidence lower bound.

-ELBO / N = E_q[CE] + T w(t) KL(q ‖ p) / N, with N training images, the temperature T and the annealing w of the step.
T = 1 and w = 1 is the bound itself, up to the class weights of the cross-entropy, which are those of MAP.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import ADAM, as_config, fidelity_entry, log_range
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.gradients import BatchInfo, Objective, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import TrainedByObjective, make_optimizer, set_pace
from retinabench.methods.training.posterior import precision
from retinabench.models.stochastic.drawing import Affine, kl, swap
from retinabench.models.stochastic.shared_weights import Rank1Layer
from retinabench.models.stochastic.variational import FAMILIES, Prior, Variational

Annealing = Literal["none", "linear", "cyclical", "linear_released"]
CYCLES = 4
RELEASED_EPOCHS = 200


class VariationalConfig(MethodConfig):
    """samples: per prediction. train_samples: passes per training step. kl_temperature: T. annealing: of the KL (`kl_weight`)."""

    samples: int = Field(5, ge=1)
    train_samples: int = Field(1, ge=1)
    kl_temperature: float = Field(1.0, ge=0)
    annealing: Annealing = "linear"


class WeightConfig(VariationalConfig):
    """estimator, prior_mean, prior_stddev, stddev_mean_init and stddev_stddev_init: see the card of `mfvi`."""

    estimator: Literal["flipout", "reparameterised"] = "flipout"
    prior_mean: Literal["tied", "zero"] = "tied"
    prior_stddev: float | None = Field(None, gt=0)
    stddev_mean_init: float = Field(1e-3, gt=0)
    stddev_stddev_init: float = Field(0.1, ge=0)


def elbo(posterior: SampledPosterior, batches: Batches, run: TrainingRun) -> Objective:
    """Return the objective with the terms `cross_entropy` and `kl`."""
    model, likelihood = posterior.model, posterior.likelihood
    options: VariationalConfig = as_config(run, VariationalConfig)

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        weight = kl_weight(batch.step, batches.steps, run.optimizer.epochs, options.annealing)
        weight *= options.kl_temperature / len(batches.train)
        losses = []
        for _ in range(options.train_samples):
            with precision(run, images.device):
                outputs = model(images)  # every pass draws its own noise
            losses.append(cross_entropy(outputs, labels, likelihood, batch))
        return {"cross_entropy": torch.stack(losses).mean(), "kl": weight * kl(model)}

    return objective


def kl_weight(step: int, steps_per_epoch: int, epochs: int, annealing: Annealing) -> float:
    """Return the weight of the KL divergence at 0-based `step`.

    `none`: 1. `linear`: rises to 1 over the first half of the training and stays. `cyclical`: the same in each of four cycles.
    `linear_released`: min(1, (step + 1) / (200 epochs)), as in the released Retina Benchmark, which a training of 90 epochs
    leaves at 0.45.
    """
    total = epochs * steps_per_epoch
    if annealing == "linear":
        return min(1.0, 2 * (step + 1) / total)
    if annealing == "cyclical":
        return min(1.0, 2 * ((step * CYCLES) % total + CYCLES) / total)
    if annealing == "linear_released":
        return min(1.0, (step + 1) / (RELEASED_EPOCHS * steps_per_epoch))
    return 1.0


class WeightLayers(TrainedByObjective):
    """What MFVI and radial share: a posterior of one family around the weight of every linear layer and convolution."""

    @staticmethod
    def family(options: WeightConfig) -> str:
        """Return the name of the noise in `FAMILIES`."""
        return "gaussian"

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
        options: WeightConfig = as_config(run, WeightConfig)
        generator = torch_generator("cpu", run.seed, "variational")
        network = swap(
            model,
            lambda layer: Variational(
                layer,
                family=FAMILIES[cls.family(options)],
                prior=Prior(options.prior_mean, options.prior_stddev),
                flipout=options.estimator == "flipout",
                stddev=(options.stddev_mean_init, options.stddev_stddev_init),
                generator=generator,
            ),
        )
        return SampledPosterior(network, likelihood)

    objective = staticmethod(elbo)


class Mfvi(WeightLayers):
    """Mean-field variational inference (Graves 2011, Blundell et al. 2015): an independent Gaussian for every weight.

    **Idea.** Every weight of a convolution or linear layer gets an independent Gaussian; biases and norms stay points.

    **Equation.** q(w) = Π N(w; μ, σ²), σ = log(1 + exp ρ), minimises

        E_q[CE(y, f_w(x))] + T a(t) KL(q ‖ p) / N,     KL = Σ log(τ/σ) + (σ² + (μ - m)²) / 2τ² - 1/2

    N training images, T the temperature, a(t) the annealing. The cross-entropy is MAP's, class weights included.
    The gradient is estimated by flipout: each image sees the perturbation σ ∘ ε with random signs of its own, which
    leaves mean and variance as they are and makes the images' noise uncorrelated. At prediction a sample is one
    weight for all images: one network.

    **Settings.** `stddev_mean_init` and `stddev_stddev_init`: the initial σ and its spread on the scale of ρ. `prior_mean`:
    `tied` (m = μ, published: the KL leaves the means to the L2 term) or `zero`; `prior_stddev` τ, by default sqrt(2 / fan-in).
    `kl_temperature` T. `annealing`: `linear` (1 from half of the training on), `cyclical` (four rises; Fu et al. 2019),
    `linear_released`, `none`. `estimator`: `flipout` or `reparameterised`. `train_samples`, `samples`.

    **As published.** `annealing = "linear_released"`: the released code divides by 200 epochs and trains 90, so the
    KL's weight ends at 0.45. The paper calls the schedule cyclical and cites Bowman et al. 2015 for it, whose
    schedule rises once. `optimizer.l2_on = "norms_and_biases"`: the released L2 term left the means alone.

    **Cost.** Two weights for one; a training step has two convolutions for one and draws as many normals as there are weights. A
    prediction is S passes; S draws of all weights serve all its batches (up to 1 GiB, beyond which each batch draws anew).

    **When it fails.** The KL's gradient of ρ is about 1 / N for each weight: with few steps σ stays near where it starts, and the
    reported uncertainty is the initial one (look at `loss_kl` in `metrics.jsonl`). With a tied mean, larger weights are free, and
    under batch norm they make the relative noise smaller. With `zero`, the bound itself (T = 1) underfits small data sets.

    **Source.** Graves 2011; Blundell et al. 2015; Wen et al. 2018; Band et al. 2021 (Retina Benchmark).
    """

    class Config(WeightConfig):
        """The options of `WeightConfig`, and no other."""

        title = "MFVI"

        name: Literal["mfvi"] = "mfvi"

        def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
            """Return the target posterior (see `MethodConfig`)."""
            variance, std = optimizer.prior_variance(points), self.prior_stddev
            if optimizer.l2_on != "everything":  # of biases and norms, which are points, it is the prior
                return optimizer.target(points, "")
            if self.prior_mean != "zero" or std is None:
                return no_target("a prior that follows the means, or the width of a layer")
            if self.annealing == "linear_released":
                return no_target("the weight of the divergence depends on the number of epochs")
            if abs(std**2 / variance - 1) > 1e-6:
                return no_target(f"two priors: variance {std**2:.3g} of weights, {variance:.3g} of biases")
            how = "the best independent Gaussian of the weights, biases and norms as points"
            return TargetPosterior(self.kl_temperature, variance, how)

    FIDELITY = (
        fidelity_entry(
            "mfvi",
            "MFVI",
            {"samples": 100, "annealing": "none", "prior_mean": "zero", "prior_stddev": "prior_std"},
            ADAM,
            tuned={
                "optimizer.lr": ({100: 0.023, 1000: 0.0023, "large": 0.00073}, 0.0061),
                "method.stddev_mean_init": (0.016, 0.0056),
            },
            searched={
                "method.stddev_mean_init": log_range(0.005, 0.1),
                "optimizer.lr": (log_range(0.0005, 0.01), log_range(0.001, 0.03)),
            },
        ),
    )


class Radial(WeightLayers):
    """Radial Bayesian network (Farquhar et al. 2020): the weights' noise has a uniform direction and a normal length.

    **Idea.** A Gaussian in D dimensions has nearly all its mass at distance sqrt(D) from the mean: samples of a large layer are
    never near the mean. The radial posterior has a uniform direction and a normal length.

    **Equation.** w = μ + σ ∘ r z / ‖z‖, z ~ N(0, I), r ~ N(0, 1), over the layer's whole weight. The objective is
    MFVI's. The KL from N(m, τ²) is closed, constants included, since E[ε_i²] = 1 / D:

        KL = Σ [(σ² / D + (μ - m)²) / 2τ² + log τ + log(2π) / 2 - log σ] - H_D
        H_D = log(π^{D/2} / Γ(D/2)) + log(2π) / 2 + 1/2 - (D - 1) (γ + log 2) / 2

    For D = 1 this is the Gaussian's. The paper and the released code estimate the cross-entropy by samples.

    **Settings.** Those of MFVI, with `stddev_mean_init` 0.1, and `norm`: over the `layer`'s whole weight, or `per_filter` as
    released. With `layer` the noise has length σ |r| beside a weight of length sqrt(2 · outputs), whatever the number of inputs.

    **As published.** The released code normalises over the last axis of the weight alone, the outputs of each input
    position, with one r for the layer: the noise is sqrt(input positions) longer, and the weights lie on a set
    without volume, so that there is no KL. Its entropy is log Σ σ where Σ log σ is meant. `norm = "per_filter"`
    draws as released; its KL is the sum over the vectors of the KL of each one's marginal, with Σ log σ.

    **Cost.** As MFVI.

    **When it fails.** Values of σ that were tuned for `per_filter` (published: 0.00002 to 0.013) are too small for `layer`: the
    method is then MAP. The KL is least at σ = sqrt(D) τ, far from any useful start, and what is said of ρ under MFVI holds here.

    **Source.** Farquhar, Osborne & Gal 2020.
    """

    class Config(WeightConfig):
        """norm: over what the noise is normalised; the other options are those of `WeightConfig`."""

        without_target = "the noise's law is not the one whose divergence from the prior is taken"
        title = "Radial"

        name: Literal["radial"] = "radial"
        stddev_mean_init: float = Field(0.1, gt=0)
        norm: Literal["layer", "per_filter"] = "layer"

    @staticmethod
    def family(options: WeightConfig) -> str:
        assert isinstance(options, Radial.Config)
        return "radial" if options.norm == "layer" else "radial_per_filter"


class Rank1(TrainedByObjective):
    """Rank-1 Bayesian network (Dusenberry et al. 2020): distributions over two vectors per layer, a point for the rest.

    **Idea.** Uncertainty in a rank-1 factor of each weight is cheap enough to have a draw per image, and K such factors
    are K ensemble members in one network that share everything else.

    **Equation.** W_k = W ∘ (s_k r_kᵀ): y = s ∘ (W (r ∘ x)) + b, with r_k and s_k Gaussian, W a point with the L2 term.

        1/K Σ_k { E_{q_k}[CE] + a(t) T KL(q_k ‖ p) / N } + l2 Σ W²

    KL is convex, so the mean over components bounds the mixture's divergence, by at most log K too much. While
    training, image b of a batch belongs to component b mod K, with noise of its own; posterior sample n is component n
    mod K, with one draw for all images. Hence `samples` is a multiple of `components`.

    **Settings.** `components` K. `positive`: share of factors that start at +1, the others at -1. `prior_mean` (`sign`, or `one`
    as released), `prior_stddev`. `fast_lr`: learning rate of the distributions relative to W's. `clip` (of samples of r and s),
    `fast_norms` (let `fast_lr` act on norms too): as released. Those of the objective as for MFVI.

    **The prior.** A row of W and its factor may both change sign and leave the network as it is, so a prior that knows
    only N(1, τ²) is arbitrary; it costs 800 nats for every factor that starts at -1, 10 million for ResNet-50.
    `prior_mean = "sign"` is the symmetric mixture of N(1, τ²) and N(-1, τ²), up to log 2 that of its nearer half, and
    does not have this conflict.

    **As published.** `prior_mean = "one"`, `clip = 10`, `fast_norms = true` (the released test for norms missed their
    names, so they had the distributions' learning rate), `components = 1` (the released mixture was not implemented).

    **Cost.** 2 (inputs + outputs) K more parameters per layer. A training step multiplies every layer's input and
    output once more. A prediction with S samples is S passes.

    **When it fails.** A component sees 1 / K of the images, and signs start the members far apart: in a short training a mixture
    lags behind (synthetic images, 12 epochs: AUROC 0.915, 0.887, 0.839 for K = 1, 2, 5). With K = 1 the samples differ little.

    **Source.** Dusenberry et al. 2020; Wen et al. 2020 (BatchEnsemble).
    """

    class Config(VariationalConfig):
        """The options of `VariationalConfig`, and those described in the card; `samples` is a multiple of `components`."""

        without_target = "random factors of two vectors per layer; the weights themselves are points"
        title = "Rank-1"

        name: Literal["rank1"] = "rank1"
        components: int = Field(1, ge=1)
        positive: float = Field(0.75, ge=0, le=1)
        prior_mean: Literal["sign", "one"] = "sign"
        prior_stddev: float = Field(0.05, gt=0)
        fast_lr: float = Field(1.0, gt=0)
        fast_norms: bool = False
        clip: float | None = Field(None, gt=0)

        @model_validator(mode="after")
        def _equal_shares(self) -> Self:
            if self.samples % self.components:
                raise ValueError(
                    f"samples ({self.samples}) is not a multiple of components ({self.components}), "
                    "whose shares must be equal"
                )
            return self

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
        options = as_config(run, Rank1.Config)
        generator = torch_generator("cpu", run.seed, "variational")

        def make(layer: Affine) -> nn.Module:
            return Rank1Layer(
                layer, components=options.components, positive=options.positive, prior_mean=options.prior_mean,
                prior_stddev=options.prior_stddev, clip=options.clip, generator=generator,
            )  # fmt: skip

        return SampledPosterior(swap(model, make), likelihood)

    objective = staticmethod(elbo)

    @staticmethod
    def optimizer(posterior: SampledPosterior, run: TrainingRun) -> torch.optim.Optimizer:
        options = as_config(run, Rank1.Config)
        optimizer = make_optimizer(posterior.model, run.optimizer)
        set_pace(optimizer, fast_parameters(posterior.model, norms=options.fast_norms), options.fast_lr)
        return optimizer


def fast_parameters(model: nn.Module, *, norms: bool) -> list[nn.Parameter]:
    """Return the parameters of the distributions of r and s, and those of batch norms on demand."""
    found = [p for module in model.modules() if isinstance(module, Rank1Layer) for p in module.fast_weights()]
    if norms:
        found += [p for module in model.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()]
    return found
