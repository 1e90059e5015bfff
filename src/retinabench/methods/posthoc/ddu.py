"""DDU: MAP's probabilities, and the density of an image's features as its own uncertainty (Mukhoti et al. 2023).

**Idea.** An image unlike all training images has features where there are none of theirs. One Gaussian is put around the
features h of each class after training; what is referred first is what is least dense.

    u(x) = -log Σ_c π_c N(h(x); μ_c, Σ_c)      or, `density` = mahalanobis,      u(x) = min_c (h - μ_c)ᵀ Σ⁻¹ (h - μ_c)

The second has one Σ for all classes (Lee et al. 2018). Covariances are shrunk towards a multiple of the identity by Ledoit and Wolf's
formula: with fewer images than features the empirical one has no inverse. The predictions file has u as its column
`uncertainty`, which orders the referral (`score --uncertainty own`, and by default). The probabilities are MAP's.

**Settings.** `density`, `spectral_bound` (of the layers of a trunk that is trained, as in `sngp`; 0: none).

**Cost.** MAP's training, and one pass over the training images, whose features are in memory at once: (N, D) numbers in
float64. Kept are at most min(N, D) directions per class. A prediction: two passes.

**When it fails.** The density does not depend on the labels: an image between the classes may be dense, and is then kept, and a familiar kind of
image that is hard is kept too. As the order of a referral in domain it is often worse than the entropy; it is made for images of other
kinds. With D far above N the shrunk covariance is nearly a sphere outside the training images' span.

**Source.** Mukhoti et al. 2023, Deep Deterministic Uncertainty: A New Simple Baseline; Lee et al. 2018, A Simple Unified
Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks; Ledoit and Wolf 2004.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.posterior import State, precision, restore_with, state_with
from retinabench.models.last_layer import SplitNetwork, split_last_layer
from retinabench.models.spectral_norm import bound_spectral_norms


class Config(MethodConfig):
    """density: a Gaussian with its own covariance per `class`, or `mahalanobis` distances by one covariance.

    spectral_bound: largest spectral norm of a layer of the trunk where the trunk is trained; 0: no bound.
    """

    title = "DDU"
    likelihoods = ("bernoulli", "categorical")

    name: Literal["ddu"] = "ddu"
    samples: Literal[1] = 1
    density: Literal["class", "mahalanobis"] = "class"
    spectral_bound: float = Field(6.0, ge=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return optimizer.target(points, "its mode")


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
    def fit(cls, mean: Tensor, centred: Tensor) -> ShrunkGaussian:
        """Shrink the covariance of rows (n, D) with mean 0 as Ledoit and Wolf do; nothing of size D x D is built.

        References:
            Ledoit and Wolf (2004), "A well-conditioned estimator for large-dimensional covariance matrices", J. Multivariate Analysis 88.

        Shapes: `mean` (D,).
        """
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
        if self.density == "mahalanobis":
            return torch.stack([one.distance(features) for one in self.gaussians]).amin(dim=0)
        logs = torch.stack([one.log_density(features) for one in self.gaussians])
        return -torch.logsumexp(logs + self.log_shares[:, None], dim=0)

    def state(self) -> State:
        """The network's tensors and the Gaussians."""
        beside = {"log_shares": self.log_shares}
        for number, one in enumerate(self.gaussians):
            beside |= {f"{number}.{name}": tensor for name, tensor in vars(one).items()}
        return state_with(self.model, beside)

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        beside = restore_with(self.model, state)
        self.log_shares = beside["log_shares"]
        names = ShrunkGaussian.__dataclass_fields__
        self.gaussians = [
            ShrunkGaussian(**{name: beside[f"{number}.{name}"] for name in names})
            for number in range(sum(key.endswith(".floor") for key in beside))
        ]


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> DensityPosterior:
    """Bound the layers of the trunk, and return the network without Gaussians."""
    network, method = split_last_layer(model), as_config(run, Config)
    if method.spectral_bound:
        start = torch_generator("cpu", run.seed, "ddu", "spectral_norm")
        bound_spectral_norms(network.trunk, method.spectral_bound, start)
    return DensityPosterior(network, likelihood, method.density)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> DensityPosterior:
    """Train MAP, and put the Gaussians around the features of the training images in one pass."""
    posterior = train(build(model, run, likelihood), batches, run, checkpoint)
    posterior.model.eval()
    features, labels = [], []
    with torch.no_grad():
        for images, truth in batches.rows(batches.train):
            with precision(run, batches.device):
                features.append(posterior.model.features(images).double())
            labels.append(truth.long())
    estimate_densities(posterior, torch.cat(features), torch.cat(labels))
    return posterior


def estimate_densities(posterior: DensityPosterior, features: Tensor, labels: Tensor) -> None:
    """Give the posterior its Gaussians.

    Shapes: `features` (N, D), `labels` (N,).
    """
    classes, counts = torch.unique(labels, return_counts=True)
    if counts.min() < 2:
        raise InputError(
            f"class {int(classes[counts.argmin()])} has one training image, which has no covariance",
            hint="Train with more images, or with another method.",
        )
    means = torch.stack([features[labels == one].mean(dim=0) for one in classes])
    posterior.log_shares = (counts.double() / len(labels)).log()
    if posterior.density == "mahalanobis":
        shared = ShrunkGaussian.fit(means[0], features - means[torch.searchsorted(classes, labels)])
        posterior.gaussians = [
            ShrunkGaussian(mean, shared.vectors, shared.spectrum, shared.floor) for mean in means
        ]
    else:
        posterior.gaussians = [
            ShrunkGaussian.fit(mean, features[labels == one] - mean)
            for mean, one in zip(means, classes, strict=True)
        ]
