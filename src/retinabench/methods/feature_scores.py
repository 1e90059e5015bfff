"""Post-hoc scores of images unlike the training images: of the logits and features of a network that was trained as MAP."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.distance_aware import training_features
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.posterior import State, restore_with, state_with
from retinabench.models.last_layer import SplitNetwork, split_last_layer


class FeatureScores:
    """Post-hoc OOD scores of MAP: the energy, the maximum logit, the nearest neighbours, or ViM of an image.

    **Idea.** A network was trained without a thought of images of other kinds. Its logits f and its features h, the input of the last
    layer, tell them apart afterwards. The predictions file has u as its column `uncertainty`; the probabilities are MAP's.

        max_logit    u = -max_c f_c
        energy       u = -log Σ_c exp f_c
        knn          u = distance of h / |h| to its k-th nearest among the training images
        vim          u = α |h⊥| - log Σ_c exp f_c,      h⊥ the part of h - o outside the d principal directions of the training
                     images about o = -W⁺ b, where all logits are equal; α makes α |h⊥| as large as the maximum logit on average

    Of two classes with one logit f the logits are -f/2 and f/2. The first two then order images as the probability's distance from one
    half does: they refer as MAP's entropy, and say nothing new. `ddu` with `density` = relative is the relative Mahalanobis distance.

    **Settings.** `score`; `neighbours` is k; `most` training images at most are kept by `knn`, drawn at random; `directions` is d (0:
    1,000 of 2,048 features and more, 512 of 768 and more, else half).

    **Cost.** MAP's training and one pass over the training images. A prediction: two passes.

    **When it fails.** It does not depend on the labels, so that it is a poor order of referral in domain; it is made for images of other kinds.

    **Source.** Liu et al. 2020, Energy-based Out-of-distribution Detection; Hendrycks et al. 2022, Scaling Out-of-Distribution Detection
    for Real-World Settings; Sun et al. 2022, Out-of-Distribution Detection with Deep Nearest Neighbors; Wang et al. 2022, ViM:
    Out-of-Distribution with Virtual-logit Matching; Ren et al. 2021, A Simple Fix to Mahalanobis Distance (`ddu`).
    """

    class Config(MethodConfig):
        """score: see the card. neighbours: k. most: training images that are kept. directions: d, 0 for the published rule."""

        title = "Post-hoc OOD score"
        approximates = "its mode"
        likelihoods = ("bernoulli", "categorical")

        name: Literal["feature_scores"] = "feature_scores"
        samples: Literal[1] = 1
        score: Literal["max_logit", "energy", "knn", "vim"] = "vim"
        neighbours: int = Field(50, ge=1)
        most: int = Field(10_000, ge=2)
        directions: int = Field(0, ge=0)

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> ScoredPosterior:
        return ScoredPosterior(split_last_layer(model), likelihood, as_config(run, FeatureScores.Config))

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> ScoredPosterior:
        """Train MAP, and keep what the score needs of the training images' features."""
        posterior = train(FeatureScores.build(model, run, likelihood), batches, run, checkpoint)
        if posterior.config.score in ("knn", "vim"):
            features, _ = training_features(posterior.model, batches, run)
            posterior.keep(features, torch_generator("cpu", run.seed, "feature scores"))
        return posterior


class ScoredPosterior(PointPosterior):
    """MAP, and a score of how unlike the training images an image is."""

    model: SplitNetwork

    def __init__(self, model: SplitNetwork, likelihood: Likelihood, config: FeatureScores.Config) -> None:
        super().__init__(model, likelihood)
        self.config = config
        self.kept: State = {}

    @torch.no_grad()
    def keep(self, features: Tensor, generator: torch.Generator) -> None:
        """Keep what the score compares with. Shapes: `features` (N, D), of the training images."""
        if self.config.score == "knn":
            chosen = torch.randperm(len(features), generator=generator)[: self.config.most].sort().values
            self.kept = {"bank": normalize(features[chosen.to(features.device)], dim=1)}
            return
        weight, bias = _two_sided(self.model.head)
        origin = -torch.linalg.pinv(weight) @ bias
        width = features.shape[1]
        directions = self.config.directions or (1000 if width >= 2048 else 512 if width >= 768 else width // 2)
        centred = features - origin
        _, vectors = torch.linalg.eigh(centred.mT @ centred)
        outside = vectors[:, : max(width - directions, 1)]  # eigenvalues ascend
        logits, norms = features @ weight.mT + bias, (centred @ outside).norm(dim=1)
        alpha = logits.amax(dim=1).sum() / norms.sum().clamp(min=1e-12)
        self.kept = {"origin": origin, "outside": outside, "alpha": alpha}

    @torch.no_grad()
    def uncertainty(self, images: Tensor) -> Tensor:
        """Return u of images (B, ...): (B,), float64."""
        self.model.eval()
        features = self.model.features(images).double()
        if self.config.score == "knn":
            bank = self.kept["bank"]
            near = torch.cdist(normalize(features, dim=1), bank)
            return near.kthvalue(min(self.config.neighbours, len(bank)), dim=1).values
        weight, bias = _two_sided(self.model.head)
        logits = features @ weight.mT + bias
        if self.config.score == "max_logit":
            return -logits.amax(dim=1)
        energy = -logits.logsumexp(dim=1)
        if self.config.score == "energy":
            return energy
        outside = ((features - self.kept["origin"]) @ self.kept["outside"]).norm(dim=1)
        virtual: Tensor = self.kept["alpha"] * outside
        return virtual + energy

    def state(self) -> State:
        return state_with(self.model, self.kept)

    def restore(self, state: State) -> None:
        self.kept = restore_with(self.model, state)


def _two_sided(head: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weight (C, D) and bias (C,) of a last layer in float64, those of one logit f as of the logits -f/2 and f/2."""
    assert isinstance(head, nn.Linear)
    weight = head.weight.double()
    bias = head.bias.double() if head.bias is not None else weight.new_zeros(len(weight))
    if len(weight) == 1:
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    return weight, bias
