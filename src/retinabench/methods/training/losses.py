"""The data term of every training loss, for a batch that may be processed in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from retinabench.methods.training.likelihood import Likelihood


class BatchInfo(NamedTuple):
    """A batch before it is cut into micro-batches and processes: the loss must not depend on the cut.

    step: 0-based number of the training step. size: images, a scalar float. positive_share: share of label 1, a scalar,
    in the batch or, for constant weights, in the training set; used by class weights alone.
    """

    step: int
    size: Tensor
    positive_share: Tensor

    @classmethod
    def of(cls, labels: Tensor, step: int = 0) -> BatchInfo:
        """Describe a batch that is processed at once."""
        size = torch.full((), float(len(labels)), device=labels.device)
        return cls(step, size, labels.float().mean())


# (inputs, labels, batch) -> the named terms of the loss. Called for every part of a batch (`optimizer.accumulate`, several
# processes, little memory): each term is a mean over the images of the part, or does not depend on them.
Objective = Callable[[Tensor, Tensor, BatchInfo], dict[str, Tensor]]


def class_weights(labels: Tensor, positive_share: Tensor) -> Tensor:
    """Weigh each example by 1 / (K p(k)), K = 2 classes, p(k) the share of its class k.

    The mean loss then is L = (1 / Kn) Σ CE / p(k). A batch with one class left gives every example 1/2.

    Args:
        labels: 0. or 1., (B,).
        positive_share: p(1) in the batch, or in the whole training set; a scalar.

    Returns:
        Weights (B,).

    References:
        Band et al. (2021), "Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks", equation A.1.
    """
    share = torch.where(labels > 0.5, positive_share, 1 - positive_share)
    return 0.5 / share


def cross_entropy(
    outputs: Tensor, labels: Tensor, likelihood: Likelihood, reweight: str, batch: BatchInfo
) -> Tensor:
    """Return the mean negative log-likelihood in nats, a scalar, computed in float32.

    Args:
        outputs: Of the network, (B, O).
        labels: As the likelihood takes them, (B,).
        likelihood: What the outputs mean.
        reweight: `minibatch` and `constant` weigh examples by `class_weights`, for one logit only; `none` does not.
        batch: The whole batch, of which the B images may be a part.
    """
    if reweight == "none":
        return likelihood.mean_loss(outputs.float(), labels)
    return mean_loss(likelihood.negative_log_likelihood(outputs.float(), labels), labels, reweight, batch)


def mean_loss(losses: Tensor, labels: Tensor, reweight: str, batch: BatchInfo) -> Tensor:
    """Return the mean of losses (B,), weighted as in `cross_entropy`.

    Args:
        losses: Of the images, (B,).
        labels: As the likelihood takes them, (B,).
        reweight: `minibatch`, `constant` or `none`.
        batch: The whole batch, of which the B images may be a part.
    """
    if reweight == "none":
        return losses.mean()
    return (losses * class_weights(labels, batch.positive_share)).mean()
