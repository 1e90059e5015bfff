"""FSVI and VBLL: variational inference over the last layer of a deterministic trunk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.settings import MethodConfig, Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective, cross_entropy, mean_loss
from retinabench.methods.training.likelihood import Likelihood, expected_loss, random_outputs
from retinabench.methods.training.loop import TrainedByObjective, make_optimizer, set_pace, train
from retinabench.methods.training.posterior import NetworkOnly, precision, rewound
from retinabench.models.last_layer import SplitNetwork, split_last_layer, with_bias

RELEASED_DEVICES = 4  # each took the KL at its own inducing inputs, over its own quarter of the batch
START = 0.1  # norm of a column of A; at 0 its gradient is 0


class GaussianLinear(nn.Module):
    """A linear layer whose D weights and bias per output are independent Gaussians; (C, D + 1), bias last."""

    def __init__(self, layer: nn.Linear, log_variance: float, generator: torch.Generator) -> None:
        super().__init__()
        bias = layer.bias if layer.bias is not None else torch.zeros(layer.out_features)
        start = torch.cat([layer.weight.detach(), bias.detach().to(layer.weight.device)[:, None]], dim=1)
        noise = 2 * torch.rand(start.shape, generator=generator) - 1
        self.mean = nn.Parameter(start.clone())
        self.log_variance = nn.Parameter((log_variance + noise).to(start.device))
        for parameter in self.parameters():
            parameter.no_decay = True  # type: ignore[attr-defined]  # the function-space prior acts instead

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> logits (B, C) of the mean weights."""
        return with_bias(features) @ self.mean.T

    def sample(self, features: Tensor, samples: int, generator: torch.Generator, *, mirrored: bool = False) -> Tensor:
        """(B, D) -> logits (S, B, C), one draw of the weights per sample, drawn in the order of the samples.

        mirrored: draws in pairs mean ± noise: each has q's law, and what is odd in the noise leaves the average, above all the
        noise that the last layer would send into the trunk.
        """
        count = (samples + 1) // 2 if mirrored else samples
        shape, device = self.mean.shape, features.device
        noise = torch.stack([torch.randn(shape, generator=generator, device=device) for _ in range(count)])
        noise = torch.cat([noise, -noise])[:samples] if mirrored else noise
        weights = self.mean + (0.5 * self.log_variance).exp() * noise
        return with_bias(features) @ weights.mT

    def variance(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C), the variance of f: the diagonal of J diag(σ²) Jᵀ, whose J is [φ, 1]."""
        return with_bias(features).square() @ self.log_variance.exp().T

    def covariance(self, features: Tensor) -> Tensor:
        """(B, D) -> (C, B, B), the covariance of f over the inputs; the outputs are independent."""
        phi = with_bias(features)
        return (phi * self.log_variance.exp()[:, None]) @ phi.T


class VariationalLinear(nn.Module):
    """A linear layer (O, D) whose first V rows are Gaussian; its biases and other rows are points.

    Row c has the covariance S = Λ^-½ (I + A Aᵀ)⁻¹ Λ^-½ with `log_scale` = log Λ^-½ (V, D) and `root` = A (V, D, R).
    """

    def __init__(self, layer: nn.Linear, random: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        weight, width = layer.weight.detach(), layer.in_features
        bias = layer.bias.detach() if layer.bias is not None else weight.new_zeros(layer.out_features)
        root = torch.randn(random, width, min(rank, width), generator=generator) * START / math.sqrt(width)
        self.mean, self.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
        self.log_scale = nn.Parameter(weight.new_zeros(random, width))
        self.root = nn.Parameter(root.to(weight.device))
        for parameter in (self.mean, self.log_scale, self.root):
            parameter.no_decay = True  # type: ignore[attr-defined]  # the divergence from the prior acts instead

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> the mean of the outputs, (B, O)."""
        return features @ self.mean.T + self.bias

    def variance(self, features: Tensor, factors: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """(B, D) -> the variance of the first V outputs, (B, V)."""
        _, solved = factors or self.factors()
        whitened = features * self.log_scale.exp()[:, None]  # (V, B, D)
        lost = (solved @ whitened.mT).square().sum(dim=1)
        return (whitened.square().sum(dim=2) - lost).clamp(min=1e-12).T

    def divergence(self, prior_variance: float, factors: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return KL(q ‖ N(0, s² I)) in nats, a scalar, with the penalty |m|² / 2 s² of the rows that are points."""
        factor, solved = factors or self.factors()
        trace = (self.log_scale.exp().square() * (1 - solved.square().sum(dim=1))).sum()
        log_det = 2 * (self.log_scale.sum() - factor.diagonal(dim1=1, dim2=2).log().sum())
        size = self.log_scale.numel()
        outer = (trace + self.mean.square().sum()) / prior_variance
        return 0.5 * (outer - size + size * math.log(prior_variance) - log_det)

    def sample(self, features: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        return features @ torch.stack([self.draw(generator) for _ in range(samples)]).mT + self.bias

    def draw(self, generator: torch.Generator) -> Tensor:
        """Draw weights (O, D): Λ^-½ (I + A Aᵀ)⁻¹ (ε + A η) has the covariance S."""
        random, width, rank = self.root.shape
        noise = torch.randn(random, width + rank, 1, generator=generator, device=self.root.device)
        noise = noise[:, :width] + self.root @ noise[:, width:]
        inner = torch.cholesky_solve(self.root.mT @ noise, self.factors()[0])
        shift = self.log_scale.exp() * (noise - self.root @ inner)[..., 0]
        return torch.cat([self.mean[:random] + shift, self.mean[random:]])

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factor L of I + Aᵀ A, (V, R, R), and L⁻¹ Aᵀ, (V, R, D): what both terms of a step need."""
        rank = self.root.shape[2]
        identity = torch.eye(rank, device=self.root.device)
        # Of a diverged training it returns NaN, which the loop reports; `cholesky` would raise an error of its own.
        factor: Tensor = torch.linalg.cholesky_ex(identity + self.root.mT @ self.root).L
        # The inverse of the small factor, and a product, are twice as fast as solving with the wide matrix.
        return factor, torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False) @ self.root.mT


Head = TypeVar("Head", GaussianLinear, VariationalLinear)


@dataclass
class LastLayerSampler(NetworkOnly, Generic[Head]):
    """A deterministic trunk and a last layer `head` with a posterior; both stand in `model`."""

    model: SplitNetwork
    likelihood: Likelihood
    head: Head

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: one pass of the trunk, S last layers."""
        self.model.eval()
        features = self.model.features(images)
        with torch.autocast(images.device.type, enabled=False):
            outputs = self.head.sample(features, samples, rewound(generator))
            return torch.stack([self.likelihood.predictive(draw) for draw in outputs])


class Fsvi(TrainedByObjective):
    """FSVI: function-space variational inference over the last layer (Rudner et al. 2022).

    **Idea.** The prior is over *functions*, f(x) ~ N(0, v), and the posterior over functions is kept near it at M
    inducing inputs. The trunk φ is deterministic, the last layer is q(w, b) = Π N(m, σ²), so that f(x) = φ(x)ᵀw + b
    is Gaussian without any approximation.

        loss = mean_n E_q[CE(y_n, f(x_n))] + 1/N Σ_i KL( N(φᵢᵀm + b, φᵢ² · σ² + σ_b²) ‖ N(0, v) )

    The paper linearises the network; a network that is linear in what is random is its own linearisation, its
    Jacobian is [φ, 1], and nothing of size P × M is ever built.

    **Settings.** `prior_variance` v, `inducing` M, `context` (images of the batch, or images in one colour, where
    the posterior is to stay the prior), `covariance` (`diagonal` drops the correlations between inducing inputs:
    the full KL is larger by q's total correlation), `kl_weight`, `log_variance` and `variance_rate` (where log σ²
    starts and how fast it learns), `train_samples`, `samples`.

    **Cost.** A step: MAP's, and S products with the last layer (draws in mirrored pairs, which keeps their noise
    from the trunk). A prediction of S samples: one pass in all.

    **When it fails.** A wide start (`log_variance = -5`) drowns the small first weights of the last layer in noise, and the trunk
    learns late. Only the last layer is uncertain: what the trunk has learnt to ignore is ignored with confidence. With
    `covariance="full"` and an independent prior, images with similar features are asked to be independent.

    **Released Retina Benchmark.** Set `kl_weight = "released"` (KL / (M · batch of each of four devices)), `log_variance = -19`,
    `variance_rate = 1`, `optimizer.reweight = "none"`, and `stochastic_mean` as tuned; loss type 3 is `optimizer.l2_on =
    "nothing"`, loss type 5 `"norms_and_biases"`. The released softmax has two outputs, whose difference is our logit: its prior
    variance is 2 v, and that is what the presets hold. The KL pulls on log σ² with M / 2 over *all* weights, so that at SGD's rate it
    hardly moves from -19 (tested for a small network): the posterior is then a point with a penalty on its logits.

    **Source.** Rudner et al. 2022, Tractable Function-Space Variational Inference in Bayesian Neural Networks.
    """

    class Config(MethodConfig):
        """samples, train_samples: draws of the last layer per prediction and per step.

        prior_variance: of f(x), per output. inducing: M, per step. context: images of the current `batch` (as released), or
        `monochrome` ones, each in the colour of one pixel of the batch. covariance: of the KL, `diagonal` (as released) or
        `full`. kl_weight: 1 / N (`training_set`, the evidence bound), or as `released`. stochastic_mean: q's mean at the
        inducing inputs from one draw of the last layer. log_variance: initial log σ², drawn within 1 of it. variance_rate:
        learning rate of log σ² relative to the network's.
        """

        without_target = "a prior over functions; the weights below the last layer are points"
        title = "FSVI"

        name: Literal["fsvi"] = "fsvi"
        samples: int = Field(5, ge=1)
        train_samples: int = Field(5, ge=1)
        prior_variance: float = Field(10.0, gt=0)
        inducing: int = Field(10, ge=1)
        context: Literal["batch", "monochrome"] = "batch"
        covariance: Literal["diagonal", "full"] = "diagonal"
        kl_weight: Literal["training_set", "released"] = "training_set"
        stochastic_mean: bool = False
        log_variance: float = -8.0
        variance_rate: float = Field(100.0, ge=0)

        def gradients_per_example(self, optimizer: Optimizer) -> float:
            """Return the epochs: `train_samples` are of the last layer alone."""
            return float(optimizer.epochs)

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> LastLayerSampler[GaussianLinear]:
        network, generator = split_last_layer(model), torch_generator("cpu", run.seed, "fsvi", "log_variance")
        assert isinstance(network.head, nn.Linear)
        network.head = GaussianLinear(network.head, as_config(run, Fsvi.Config).log_variance, generator)
        return LastLayerSampler(network, likelihood, network.head)

    @staticmethod
    def optimizer(posterior: LastLayerSampler[GaussianLinear], run: TrainingRun) -> torch.optim.Optimizer:
        optimizer = make_optimizer(posterior.model, run.optimizer)
        set_pace(optimizer, [posterior.head.log_variance], as_config(run, Fsvi.Config).variance_rate)
        return optimizer

    @staticmethod
    def objective(posterior: LastLayerSampler[GaussianLinear], batches: Batches, run: TrainingRun) -> Objective:
        method, network, head = as_config(run, Fsvi.Config), posterior.model, posterior.head

        def terms_of(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            generator = torch_generator(images.device, run.seed, "fsvi", batch.step)
            with precision(run, batches.device):
                features = network.features(images)
            chosen = torch.randperm(len(images), generator=generator, device=images.device)[: method.inducing]
            if method.context == "batch":
                inducing = features[chosen]
            else:
                network.eval()  # monochrome images must not enter the batch norms' statistics
                with precision(run, batches.device):
                    inducing = network.features(monochrome(images[chosen], generator))
                network.train()
            logits = head.sample(features, method.train_samples, generator, mirrored=True)
            mean = head.sample(inducing, 1, generator)[0] if method.stochastic_mean else head(inducing)
            if method.covariance == "full":
                kl = kl_full(mean, head.covariance(inducing), method.prior_variance)
            else:
                prior = torch.full_like(mean, method.prior_variance)
                kl = kl_diagonal(mean, head.variance(inducing), torch.zeros_like(mean), prior)
            inputs = batch.size.clamp(max=method.inducing)  # of the batch; a small part of it has fewer
            terms = inputs * batch.size / RELEASED_DEVICES if method.kl_weight == "released" else len(batches.train)
            repeated = labels.repeat(len(logits), *[1] * (labels.ndim - 1))
            return {
                "cross_entropy": cross_entropy(logits.flatten(0, 1), repeated, posterior.likelihood, batch),
                "function_kl": kl * (inputs / len(chosen)) / terms,
            }

        return terms_of


def kl_diagonal(mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor) -> Tensor:
    """Return Σ KL(N(mean, variance) ‖ N(prior_mean, prior_variance)) in nats, a scalar over all entries."""
    ratio = variance / prior_variance
    kl: Tensor = 0.5 * (ratio - 1 - ratio.log() + (mean - prior_mean).square() / prior_variance).sum()
    return kl


def kl_full(mean: Tensor, covariance: Tensor, prior_variance: float) -> Tensor:
    """Return Σ_c KL(N(mean[:, c], covariance[c]) ‖ N(0, prior_variance · I)) in nats, a scalar.

    It is `kl_diagonal` plus the total correlation of q. A millionth of the mean variance on the diagonal keeps images
    that are (nearly) alike from making the covariance singular.
    Shapes: `mean` (M, C), `covariance` (C, M, M).
    """
    covariance, mean = covariance.double(), mean.double()
    variance = covariance.diagonal(dim1=1, dim2=2)
    jitter = 1e-6 * variance.mean(dim=1)[:, None, None] * torch.eye(len(mean), device=mean.device, dtype=mean.dtype)
    log_det = 2 * torch.linalg.cholesky(covariance + jitter).diagonal(dim1=1, dim2=2).log().sum()
    outer = (variance.sum() + mean.square().sum()) / prior_variance
    kl: Tensor = 0.5 * (outer - mean.numel() + mean.numel() * math.log(prior_variance) - log_det)
    return kl.float()


def monochrome(images: Tensor, generator: torch.Generator) -> Tensor:
    """(M, 3, H, W) -> (M, 3, H, W): each image in the colour of one random pixel of its original."""
    flat = images.flatten(2)
    place = torch.randint(flat.shape[2], (len(images), 1, 1), generator=generator, device=images.device)
    colour = flat.gather(2, place.expand(-1, flat.shape[1], -1))
    return colour[..., None].expand_as(images).contiguous(memory_format=torch.channels_last)


class Vbll:
    """VBLL: a variational Bayesian last layer, trained by a bound in closed form (Harrison et al. 2024).

    **Idea.** The trunk φ is deterministic; the weights of each output of the last layer are Gaussian with correlations,
    q(w) = N(m, S), so that the output is N(φᵀm, φᵀS φ). The loss is an upper bound of -ELBO / N in which nothing is sampled.

        loss = mean_n B(y_n; φ_nᵀm, φ_nᵀS φ_n) + 1/N KL( q(w) ‖ N(0, s² I) ),   S⁻¹ = Λ^½ (I + A Aᵀ) Λ^½

    B ≥ E_q[-log p(y | f)]: exact for a regression, Jaakkola and Jordan's for two classes (tighter than the paper's, whose Jensen
    bound is used for C classes; `training/likelihood.py`). The paper's own noise on the logits is left out. The precision
    is a diagonal Λ and A (D, R): with R = min(N, D) it holds the exact posterior of a linear regression, whose precision is the
    prior's plus N terms of rank one. Biases are points, and so is what determines the noise of a regression.

    **Settings.** `rank` R (at most D; 0 is mean-field), `prior_variance` s², `rate` (of Λ and A relative to the
    network's), `samples`.

    **Cost.** MAP's training, and per step O(C D R (B + R)). Predictions: one pass, and S draws of the last layer. Memory:
    C D (R + 2) numbers, 0.2 million with D = 2,560 and R = 64; a dense S would take 6.6 million per output.

    **When it fails.** Only the last layer is uncertain. With many more features than images most directions keep the prior's
    width, and the prior decides how uncertain the predictions are. Directions beyond the R-th are as wide as Λ says.
    The bound for C classes is loose where variances are large, and then makes S too small.

    **Source.** Harrison, Willes and Snoek 2024, Variational Bayesian Last Layers.
    """

    class Config(MethodConfig):
        """samples: draws of the last layer per prediction.

        rank: R, columns of A per output, at most the features. prior_variance: s²; by default that of the L2 term,
        1 / (2 N l2), so that the mean has the penalty of MAP. rate: learning rate of Λ and A relative to the network's.
        """

        without_target = "the weights below the last layer and the biases are points"
        title = "VBLL"

        name: Literal["vbll"] = "vbll"
        samples: int = Field(100, ge=1)
        rank: int = Field(64, ge=0)
        prior_variance: float | None = Field(None, gt=0)
        rate: float = Field(30.0, gt=0)

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> LastLayerSampler[VariationalLinear]:
        network, rank = split_last_layer(model), as_config(run, Vbll.Config).rank
        assert isinstance(network.head, nn.Linear)
        generator = torch_generator("cpu", run.seed, "vbll", "root")
        network.head = VariationalLinear(network.head, random_outputs(likelihood), rank, generator)
        return LastLayerSampler(network, likelihood, network.head)

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> LastLayerSampler[VariationalLinear]:
        posterior, method = Vbll.build(model, run, likelihood), as_config(run, Vbll.Config)
        prior = method.prior_variance or run.optimizer.prior_variance(len(batches.train))
        if math.isinf(prior):
            hint = "Set method.prior_variance, or optimizer.l2."
            raise InputError("optimizer.l2=0 defines no prior for the last layer", hint=hint)
        head = posterior.head
        with torch.no_grad():
            # S starts at the prior, or where a sum of D features of size 1 has the variance 1: a wider start drowns the labels.
            head.log_scale.fill_(0.5 * math.log(min(prior, 1 / head.log_scale.shape[1])))
        optimizer = make_optimizer(posterior.model, run.optimizer)
        set_pace(optimizer, [head.log_scale, head.root], method.rate)
        objective = Vbll.objective(posterior, batches, run, prior)
        return train(posterior, batches, run, checkpoint, objective=objective, optimizer=optimizer)

    @staticmethod
    def objective(
        posterior: LastLayerSampler[VariationalLinear], batches: Batches, run: TrainingRun, prior_variance: float
    ) -> Objective:
        head, points = posterior.head, len(batches.train)

        def terms_of(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            with precision(run, batches.device):
                features = posterior.model.features(images)
            factors = head.factors()
            losses = expected_loss(posterior.likelihood, head(features), head.variance(features, factors), labels)
            return {
                "cross_entropy": mean_loss(losses, labels, batch),
                "divergence": head.divergence(prior_variance, factors) / points,
            }

        return terms_of
