"""Likelihoods: what the outputs of a network mean, and the expected loss where the outputs are Gaussian.

Every method is given a likelihood; none asks which one it is.
Letters: B batch, O network outputs, C classes. Values are in nats and in the precision of the outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, softplus


class Likelihood(ABC):
    """p(y | outputs): a loss, a predictive distribution, and the curvature that Laplace's approximation needs.

    name: by which methods declare what they support (`MethodConfig.likelihoods`). reweightable: whether
    `optimizer.reweight`, which is about two classes, has a meaning.
    """

    name: ClassVar[str]
    reweightable: ClassVar[bool] = False

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number O of outputs that a network must have: one logit, one per class or label, or mean and raw std."""

    @abstractmethod
    def negative_log_likelihood(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return -log p(y | outputs) in nats, (B,), of outputs (B, O) and labels (B,)."""

    @abstractmethod
    def predictive(self, outputs: Tensor) -> Tensor:
        """Turn outputs (B, O) into the parameters of the predictive distribution in float32, (B, C)."""

    @abstractmethod
    def sample(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """Draw labels (B,) given outputs (B, O), in the form that `negative_log_likelihood` takes."""

    @abstractmethod
    def information(self, outputs: Tensor) -> Tensor:
        """Return the Fisher information Λ of a label in the outputs: (B, O) -> (B, O, O)."""

    @abstractmethod
    def root_times(self, outputs: Tensor, vector: Tensor) -> Tensor:
        """Return R v, (O,), for a vector v (O,) and Λ = Rᵀ R at outputs (O,)."""

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of a batch, a scalar."""
        return self.negative_log_likelihood(outputs, labels).mean()


class _Independent(Likelihood):
    """Independent binary labels, one logit each."""

    def information(self, outputs: Tensor) -> Tensor:
        """Return diag(p (1 - p)), (B, O, O): that of an image with all labels known."""
        p = outputs.sigmoid()
        return torch.diag_embed(p * (1 - p))

    def root_times(self, outputs: Tensor, vector: Tensor) -> Tensor:
        """Return √(p (1 - p)) v."""
        p = outputs.sigmoid()
        return (p * (1 - p)).sqrt() * vector


@dataclass(frozen=True)
class Bernoulli(_Independent):
    """Two classes, one logit (B, 1); labels 0. or 1. as floats (B,). Predicts P(0) and P(1), (B, 2)."""

    name: ClassVar[str] = "bernoulli"
    reweightable: ClassVar[bool] = True
    outputs = 1

    def negative_log_likelihood(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(outputs.squeeze(1), labels, reduction="none")

    def predictive(self, outputs: Tensor) -> Tensor:
        positive = outputs.float().sigmoid()
        return torch.cat([1 - positive, positive], dim=1)

    def sample(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return torch.multinomial(self.predictive(outputs), 1, generator=generator).squeeze(1).float()


@dataclass(frozen=True)
class Categorical(Likelihood):
    """C classes, C logits (B, C); labels are class numbers, int64 (B,). Predicts class probabilities (B, C)."""

    name: ClassVar[str] = "categorical"
    classes: int

    @property
    def outputs(self) -> int:
        return self.classes

    def negative_log_likelihood(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs, labels, reduction="none")

    def predictive(self, outputs: Tensor) -> Tensor:
        return outputs.float().softmax(dim=1)

    def sample(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return torch.multinomial(self.predictive(outputs), 1, generator=generator).squeeze(1)

    def information(self, outputs: Tensor) -> Tensor:
        """Return diag(p) - p pᵀ, (B, C, C)."""
        p = outputs.softmax(dim=1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    def root_times(self, outputs: Tensor, vector: Tensor) -> Tensor:
        """Return √p (v - pᵀ v)."""
        p = outputs.softmax(dim=0)
        return p.sqrt() * (vector - p @ vector)


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """A real target with noise of unknown size: outputs μ and r, (B, 2), σ = softplus(r) + `floor`; labels (B,).

    Predicts mean and standard deviation, (B, 2).
    """

    name: ClassVar[str] = "gaussian"
    floor: float = 0.0
    outputs = 2

    def std(self, raw: Tensor) -> Tensor:
        """Return σ = softplus(r) + floor of raw outputs r, any shape."""
        std = softplus(raw)
        return std + self.floor if self.floor else std

    def negative_log_likelihood(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return ½ ((y - μ) / σ)² + log σ + ½ log 2π, (B,)."""
        std = self.std(outputs[:, 1])
        return 0.5 * ((labels - outputs[:, 0]) / std).square() + std.log() + 0.5 * math.log(2 * math.pi)

    def predictive(self, outputs: Tensor) -> Tensor:
        outputs = outputs.float()
        return torch.stack([outputs[:, 0], self.std(outputs[:, 1])], dim=1)

    def sample(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        mean, std = self.predictive(outputs).unbind(dim=1)
        return mean + std * torch.randn(len(mean), generator=generator, device=mean.device)

    def information(self, outputs: Tensor) -> Tensor:
        """Return diag(1, 2 (dσ/dr)²) / σ², (B, 2, 2)."""
        return torch.diag_embed(self._root(outputs).square())

    def root_times(self, outputs: Tensor, vector: Tensor) -> Tensor:
        """Return (1, √2 dσ/dr) / σ times v."""
        return self._root(outputs) * vector

    def _root(self, outputs: Tensor) -> Tensor:
        """(..., 2) -> (1, √2 dσ/dr) / σ, (..., 2); dσ/dr = sigmoid(r)."""
        raw = outputs[..., 1]
        slope = math.sqrt(2) * raw.sigmoid()
        return torch.stack([torch.ones_like(raw), slope], dim=-1) / self.std(raw)[..., None]


@dataclass(frozen=True)
class MultiLabel(_Independent):
    """Labels 0. or 1. or NaN where unknown, (B, O). Losses are means over the known ones. Predicts P(1) of each label, (B, O)."""

    name: ClassVar[str] = "multilabel"
    labels: int

    @property
    def outputs(self) -> int:
        return self.labels

    def negative_log_likelihood(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean binary cross-entropy over the known labels of each image, (B,); 0 where none is known."""
        known = ~labels.isnan()
        losses = binary_cross_entropy_with_logits(outputs, labels.nan_to_num(), reduction="none")
        return (losses * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean binary cross-entropy over all known labels of a batch, a scalar."""
        known = ~labels.isnan()
        return binary_cross_entropy_with_logits(outputs[known], labels[known])

    def predictive(self, outputs: Tensor) -> Tensor:
        return outputs.float().sigmoid()

    def sample(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(self.predictive(outputs), generator=generator)


@singledispatch
def expected_loss(likelihood: Likelihood, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    """Return an upper bound of E[-log p(y | f)] in nats, (B,), where f ~ N(mean (B, O), diag(variance (B, V))).

    Of a Gaussian the expectation is exact; of labels it is bounded, so that a variational last layer is trained without sampling:

        bernoulli     -(y - ½) m + log 2 cosh(ξ / 2), ξ² = m² + v: never above Jensen's bound of the logits ±f / 2
        categorical   log Σ_c exp(m_c + v_c / 2) - m_y: Jensen's inequality for the log of the sum

    References:
        Jaakkola and Jordan (2000), "Bayesian parameter estimation via variational methods", Statistics and Computing 10;
        Harrison, Willes and Snoek (2024), "Variational Bayesian last layers", ICLR (regression and classes).
    """
    raise TypeError(f"no bound of the expected loss is known for the likelihood '{likelihood.name}'")


def random_outputs(likelihood: Likelihood) -> int:
    """Return the number V of outputs that may be random: of a Gaussian the mean alone, of the others all."""
    return 1 if isinstance(likelihood, Gaussian) else likelihood.outputs


@expected_loss.register
def _(likelihood: Gaussian, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    return likelihood.negative_log_likelihood(mean, labels) + 0.5 * variance[:, 0] / likelihood.std(mean[:, 1]).square()


@expected_loss.register
def _(likelihood: Bernoulli, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    return _jaakkola_jordan(mean, variance, labels[:, None])[:, 0]


@expected_loss.register
def _(likelihood: Categorical, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    return torch.logsumexp(mean + 0.5 * variance, dim=1) - mean.gather(1, labels[:, None])[:, 0]


@expected_loss.register
def _(likelihood: MultiLabel, mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    known = ~labels.isnan()
    return (_jaakkola_jordan(mean, variance, labels.nan_to_num()) * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)


def _jaakkola_jordan(mean: Tensor, variance: Tensor, labels: Tensor) -> Tensor:
    """-(y - ½) m + log 2 cosh(ξ / 2), of any shape."""
    xi = (mean.square() + variance).sqrt()
    return (0.5 - labels) * mean + 0.5 * xi + softplus(-xi)
