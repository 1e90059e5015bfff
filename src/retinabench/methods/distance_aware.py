"""SNGP and DDU: networks whose trunk keeps distances, and which know how far an image is from the training images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.laplace import LastLayerPosterior, last_layer_curvature
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.methods.training.posterior import State, precision, restore_with, state_with
from retinabench.models.last_layer import SplitNetwork, split_last_layer


class SpectralBound(nn.Module):
    """W -> W min(1, bound / σ(W)), the largest singular value σ by one power iteration per forward pass in training.

    A kernel (out, in, h, w) counts as its matrix (out, in · h · w).

    References:
        Miyato et al. (2018), "Spectral normalization for generative adversarial networks", ICLR; with a bound above 1, Liu et al. (2020),
        equation 10.
    """

    left: Tensor

    def __init__(self, weight: Tensor, bound: float, generator: torch.Generator) -> None:
        super().__init__()
        self.bound = bound
        left = torch.randn(len(weight), generator=generator).to(weight.device)
        self.register_buffer("left", left / left.norm())
        for _ in range(10):
            self._iterate(weight.detach().flatten(1))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1)
        if self.training and torch.is_grad_enabled():
            self._iterate(matrix.detach())
        left = self.left.clone()  # the next pass changes it in place
        sigma = (left @ matrix).norm()
        bounded: Tensor = weight * (self.bound / sigma.clamp(min=1e-12)).clamp(max=1.0)
        return bounded

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        left = matrix @ (self.left @ matrix)
        self.left.copy_(left / left.norm().clamp(min=1e-12))


def bound_spectral_norms(model: nn.Module, bound: float, run: TrainingRun) -> None:
    """Bound the spectral norm of every trained convolution and linear layer of `model`, in place; 0: no bound."""
    generator = torch_generator("cpu", run.seed, run.method.name, "spectral_norm")
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear)) and m.weight.requires_grad]
    for layer in layers if bound else ():
        parametrize.register_parametrization(layer, "weight", SpectralBound(layer.weight, bound, generator))


class Sngp:
    """SNGP: a Gaussian process on the last layer's input, by random features and Laplace's approximation (Liu et al. 2020).

    **Idea.** Far from the training images the output should return to the prior. The last layer is a Gaussian process with the
    kernel a² exp(-|h - h'|² / (2 ℓ² D)) of the trunk's features h (D), in M random Fourier features, and the trunk keeps
    distances because the spectral norm of its layers is bounded.

        f = Φ(h) β,   Φ = a √(2 / M) cos(W h / (ℓ √D) + b),   β ~ N(0, I),   q(β) = N(β*, (H + I)⁻¹)

    β* is trained with the trunk by the penalised likelihood; H is the curvature at the end (`laplace`).

    **Settings.** `random_features` M, `length_scale` ℓ (in stds of one feature), `kernel_variance` a², `spectral_bound`
    (0: none), `samples`. A head that is trained alone has no layers to bound: there the trunk is a pretrained network, whose distances
    are whatever its training made them.

    **Cost.** MAP's training with M + 1 weights per output instead of D + 1, and one power iteration per layer and step;
    then one pass over the training images. Memory (C (M + 1))² numbers. Predictions: one pass in all.

    **When it fails.** M features hold a kernel with an error of about a² / √M. With a length scale that is far too short every image is
    far from all others, with one that is far too long the model is linear. Without bounded layers two different images may have the same features. Where
    trunk features are standardised, distances in 2,560 dimensions are nearly all alike. A regression is refused: with the default
    kernel its noise and mean diverge at learning rates that suit classes.

    **Source.** Liu et al. 2020, Simple and Principled Uncertainty Estimation with Deterministic Deep Learning via Distance
    Awareness; Rahimi and Recht 2007 (random features). The paper has one covariance for all classes, from the largest
    probability; here H is the exact curvature of the likelihood. Predictions are sampled, not by the mean-field formula.
    """

    class Config(MethodConfig):
        """samples: draws of β per prediction.

        random_features: M. length_scale: ℓ of the kernel, in units of √D. kernel_variance: a², the prior variance of an output.
        spectral_bound: largest spectral norm of a layer of the trunk where the trunk is trained; 0: no bound.
        """

        without_target = "a prior over functions of the features; the weights below are points"
        title = "SNGP"
        likelihoods = ("bernoulli", "categorical", "multilabel")

        name: Literal["sngp"] = "sngp"
        samples: int = Field(100, ge=1)
        random_features: int = Field(1024, ge=1)
        length_scale: float = Field(2.0, gt=0)
        kernel_variance: float = Field(100.0, gt=0)
        spectral_bound: float = Field(6.0, ge=0)

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> LastLayerPosterior:
        """Put random features and a linear layer where the last layer was, and bound the layers of the trunk."""
        method, network = as_config(run, Sngp.Config), split_last_layer(model)
        assert isinstance(network.head, nn.Linear)
        device = network.head.weight.device
        bound_spectral_norms(network.trunk, method.spectral_bound, run)
        drawn = torch_generator("cpu", run.seed, "sngp", "random_features")
        features = RandomFeatures(network.width, method, drawn).to(device)
        head = nn.Linear(method.random_features, network.head.out_features, device=device)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
            parameter.no_decay = True  # type: ignore[attr-defined]  # the prior of β acts instead
        split = SplitNetwork(nn.Sequential(network.trunk, features), head, method.random_features, network.name)
        size = head.weight.numel() + head.bias.numel()
        return LastLayerPosterior(split, likelihood, head.weight.new_zeros(size, size))

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> LastLayerPosterior:
        """Train the mode, measure the curvature in one pass and return the posterior; validation is that of the mode."""
        posterior = Sngp.build(model, run, likelihood)
        objective = penalised(posterior, batches, run)
        train(PointPosterior(posterior.model, likelihood), batches, run, checkpoint, objective=objective)
        posterior.model.eval()
        posterior.factor = inverse_root(last_layer_curvature(posterior, batches, run)).float()
        return posterior


class RandomFeatures(nn.Module):
    """h (B, D) -> a √(2 / M) cos(W h / (ℓ √D) + b), (B, M); W and b are drawn once and kept."""

    frequencies: Tensor
    phases: Tensor

    def __init__(self, width: int, settings: Sngp.Config, generator: torch.Generator) -> None:
        super().__init__()
        size = settings.random_features
        self.amplitude = math.sqrt(2 * settings.kernel_variance / size)
        scale = settings.length_scale * math.sqrt(width)
        self.register_buffer("frequencies", torch.randn(width, size, generator=generator) / scale)
        self.register_buffer("phases", 2 * math.pi * torch.rand(size, generator=generator))

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            return self.amplitude * torch.cos(features.float() @ self.frequencies + self.phases)


def inverse_root(curvature: Tensor) -> Tensor:
    """Return F (P, P) with F Fᵀ = (H + I)⁻¹, of H + I = L Lᵀ: L⁻ᵀ, at a fraction of the cost of eigenvectors."""
    identity = torch.eye(len(curvature), dtype=curvature.dtype, device=curvature.device)
    lower = torch.linalg.cholesky(curvature + identity)
    root: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False).mT
    return root


def penalised(posterior: LastLayerPosterior, batches: Batches, run: TrainingRun) -> Objective:
    """Return the loss of MAP and the prior of β and of the bias, |β|² / 2N."""
    data = likelihood_only(posterior.model, batches, run, posterior.likelihood)
    points, weights = len(batches.train), list(posterior.model.head.parameters())

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        squares = sum((p.square().sum() for p in weights), torch.zeros((), device=labels.device))
        return {**data(images, labels, batch), "prior": 0.5 * squares / points}

    return objective


@dataclass
class ShrunkGaussian:
    """N(mean, V diag(spectrum) Vᵀ + floor (I - V Vᵀ)): R directions with variances of their own, the rest share one.

    Shapes: `mean` (D,), `vectors` (D, R), `spectrum` (R,).
    """

    mean: Tensor
    vectors: Tensor
    spectrum: Tensor
    floor: Tensor

    @classmethod
    def fit(cls, mean: Tensor, centred: Tensor, like: ShrunkGaussian | None = None) -> ShrunkGaussian:
        """Shrink the covariance of rows (n, D) with mean 0 as Ledoit and Wolf (2004) do, or as that of `like`; nothing of size D x D is built."""
        n, size = centred.shape
        _, singular, rows = torch.linalg.svd(centred, full_matrices=False)
        eigenvalues = singular.square() / n
        average = eigenvalues.sum() / size
        squares = eigenvalues.square().sum()
        dispersion = squares - size * average.square()
        fourth = centred.square().sum(dim=1).square().mean()
        noise = torch.minimum((fourth - squares) / n, dispersion)
        shrinkage = noise / dispersion if dispersion > 0 else torch.ones_like(dispersion)
        # Of features that never vary the covariance is 0; a millionth keeps its inverse.
        floor = (shrinkage * average).clamp(min=1e-6)
        if like is not None:
            floor = like.floor
            shrinkage = size * floor / ((like.spectrum - floor).sum() + size * floor)
        return cls(mean, rows.mT.contiguous(), (1 - shrinkage) * eigenvalues + floor, floor)

    def distance(self, features: Tensor) -> Tensor:
        """(B, D) -> squared Mahalanobis distances (B,)."""
        centred = features.double() - self.mean
        inside = centred @ self.vectors
        outside = centred.square().sum(dim=1) - inside.square().sum(dim=1)
        return (inside.square() / self.spectrum).sum(dim=1) + outside.clamp(min=0) / self.floor

    def log_density(self, features: Tensor) -> Tensor:
        """(B, D) -> log densities (B,)."""
        size, rank = self.vectors.shape
        log_det = self.spectrum.log().sum() + (size - rank) * self.floor.log()
        return -0.5 * (self.distance(features) + log_det + size * math.log(2 * math.pi))


class DensityPosterior(PointPosterior):
    """MAP, and Gaussians around the features of the classes."""

    model: SplitNetwork

    def __init__(self, model: SplitNetwork, likelihood: Likelihood, density: str) -> None:
        super().__init__(model, likelihood)
        self.density = density
        self.log_shares: Tensor = torch.zeros(0)
        self.gaussians: list[ShrunkGaussian] = []

    @torch.no_grad()
    def uncertainty(self, images: Tensor) -> Tensor:
        """Return -log density, or the least squared Mahalanobis distance, of images (B, ...): (B,), float64."""
        self.model.eval()
        features = self.model.features(images)
        if self.density != "class":
            of_classes, of_all = self.gaussians[: len(self.log_shares)], self.gaussians[len(self.log_shares) :]
            nearest = torch.stack([one.distance(features) for one in of_classes]).amin(dim=0)
            return nearest - of_all[0].distance(features) if of_all else nearest
        logs = torch.stack([one.log_density(features) for one in self.gaussians])
        return -torch.logsumexp(logs + self.log_shares[:, None], dim=0)

    def state(self) -> State:
        beside = {"log_shares": self.log_shares}
        for number, one in enumerate(self.gaussians):
            beside |= {f"{number}.{name}": tensor for name, tensor in vars(one).items()}
        return state_with(self.model, beside)

    def restore(self, state: State) -> None:
        beside = restore_with(self.model, state)
        self.log_shares, names = beside["log_shares"], ShrunkGaussian.__dataclass_fields__
        self.gaussians = [
            ShrunkGaussian(**{name: beside[f"{number}.{name}"] for name in names})
            for number in range(sum(key.endswith(".floor") for key in beside))
        ]


class Ddu:
    """DDU: MAP's probabilities, and the density of an image's features as its own uncertainty (Mukhoti et al. 2023).

    **Idea.** An image unlike all training images has features where there are none of theirs. One Gaussian is put around the
    features h of each class after training; what is referred first is what is least dense.

        u(x) = -log Σ_c π_c N(h(x); μ_c, Σ_c)      or, `density` = mahalanobis,      u(x) = min_c (h - μ_c)ᵀ Σ⁻¹ (h - μ_c)

    The second has one Σ for all classes (Lee et al. 2018); `relative` subtracts from it the distance to one Gaussian around all training
    images, which takes away what all images vary in (Ren et al. 2021). Of C classes it depends on the C - 1 directions between their means
    alone: of two classes it sees little of images of other kinds. Covariances are shrunk towards a multiple of the identity by Ledoit and Wolf's
    formula: with fewer images than features the empirical one has no inverse. The predictions file has u as its column
    `uncertainty`, which orders the referral (`score --uncertainty own`, and by default). The probabilities are MAP's.

    **Settings.** `density`, `spectral_bound` (of the layers of a trunk that is trained, as in `sngp`; 0: none).

    **Cost.** MAP's training, and one pass over the training images, whose features are in memory at once: (N, D) numbers in
    float64. Kept are at most min(N, D) directions per class. A prediction: two passes.

    **When it fails.** The density does not depend on the labels: an image between the classes may be dense, and is then kept. As the
    order of a referral in domain it is often worse than the entropy; it is made for images of other kinds. With D far above N the
    shrunk covariance is nearly a sphere outside the training images' span.

    **Source.** Mukhoti et al. 2023, Deep Deterministic Uncertainty: A New Simple Baseline; Lee et al. 2018, A Simple Unified
    Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks; Ren et al. 2021, A Simple Fix to Mahalanobis Distance for
    Improving Near-OOD Detection; Ledoit and Wolf 2004.
    """

    class Config(MethodConfig):
        """density: a Gaussian with its own covariance per `class`, or `mahalanobis` distances by one covariance, or these `relative` to all images.

        spectral_bound: largest spectral norm of a layer of the trunk where the trunk is trained; 0: no bound.
        """

        title = "DDU"
        approximates = "its mode"
        likelihoods = ("bernoulli", "categorical")

        name: Literal["ddu"] = "ddu"
        samples: Literal[1] = 1
        density: Literal["class", "mahalanobis", "relative"] = "class"
        spectral_bound: float = Field(6.0, ge=0)

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> DensityPosterior:
        """Bound the layers of the trunk, and return the network without Gaussians."""
        network, method = split_last_layer(model), as_config(run, Ddu.Config)
        bound_spectral_norms(network.trunk, method.spectral_bound, run)
        return DensityPosterior(network, likelihood, method.density)

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> DensityPosterior:
        """Train MAP, and put the Gaussians around the features of the training images in one pass."""
        posterior = train(Ddu.build(model, run, likelihood), batches, run, checkpoint)
        estimate_densities(posterior, *training_features(posterior.model, batches, run))
        return posterior


@torch.no_grad()
def training_features(network: SplitNetwork, batches: Batches, run: TrainingRun) -> tuple[Tensor, Tensor]:
    """Return features (N, D) of the training images in float64, and their labels (N,), by one pass."""
    network.eval()
    features, labels = [], []
    for images, truth in batches.rows(batches.train):
        with precision(run, batches.device):
            features.append(network.features(images).double())
        labels.append(truth.long())
    return torch.cat(features), torch.cat(labels)


def estimate_densities(posterior: DensityPosterior, features: Tensor, labels: Tensor) -> None:
    """Give the posterior its Gaussians. Shapes: `features` (N, D), `labels` (N,)."""
    classes, counts = torch.unique(labels, return_counts=True)
    if counts.min() < 2:
        problem = f"class {int(classes[counts.argmin()])} has one training image, which has no covariance"
        raise InputError(problem, hint="Train with more images, or with another method.")
    means = torch.stack([features[labels == one].mean(dim=0) for one in classes])
    posterior.log_shares = (counts.double() / len(labels)).log()
    if posterior.density != "class":
        shared = ShrunkGaussian.fit(means[0], features - means[torch.searchsorted(classes, labels)])
        posterior.gaussians = [ShrunkGaussian(mean, shared.vectors, shared.spectrum, shared.floor) for mean in means]
        if posterior.density == "relative":
            mean = features.mean(dim=0)
            # The same shrinkage and floor: else the larger covariance may be the class's own outside the training images' span.
            posterior.gaussians.append(ShrunkGaussian.fit(mean, features - mean, shared))
    else:
        posterior.gaussians = [
            ShrunkGaussian.fit(mean, features[labels == one] - mean) for mean, one in zip(means, classes, strict=True)
        ]
