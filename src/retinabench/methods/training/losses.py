"""The data term of every training loss, for a batch that may be processed in parts, and the check that all terms are finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from retinabench.core.errors import DivergedError
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.likelihood import Likelihood

NEVER = 2**62
LIKELIHOOD = "cross_entropy"
EVERY = 50  # steps between two checks on a CPU; on a GPU a check would wait for the device


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


class FiniteCheck:
    """The first step at which each loss term was NaN or infinite, kept on the device until `check`."""

    def __init__(self, run: TrainingRun, steps_per_epoch: int, schedule: Callable[[int], float]) -> None:
        self._run = run
        self._steps_per_epoch = steps_per_epoch
        self._schedule = schedule
        self._first: dict[str, Tensor] = {}

    def record(self, terms: dict[str, Tensor], step: int) -> None:
        """Record the terms of one 0-based step, or of a part of it."""
        for name, term in terms.items():
            at = torch.where(torch.isfinite(term.detach()), NEVER, step)
            self._first[name] = torch.minimum(self._first[name], at) if name in self._first else at
        alone = distributed.current().count == 1  # other processes would wait for one that raised
        if alone and at.device.type == "cpu" and step % EVERY == EVERY - 1:
            self.check()

    def check(self) -> None:
        """Raise `DivergedError` where a term of any process was not finite."""
        if not self._first:
            return
        found = distributed.smallest(torch.stack(list(self._first.values()))).tolist()
        first = dict(zip(self._first, found, strict=True))
        step = min(first.values())
        if step < NEVER:
            raise DivergedError(self._explain([name for name, at in first.items() if at == step], step))

    def _explain(self, terms: list[str], step: int) -> str:
        names = " and ".join(f"'{name}'" for name in terms)
        epoch, optimizer, method = (
            step // self._steps_per_epoch + 1,
            self._run.optimizer,
            self._run.method.name,
        )
        rate = self._schedule(step)
        if step == 0:
            hint = (
                "No step was taken yet: look at the images and labels (retinabench inspect), "
                f"and at the starting values of the method '{method}'."
            )
        elif LIKELIHOOD in self._first and LIKELIHOOD not in terms:
            hint = (
                f"The likelihood was still finite, so a penalty of the method '{method}' overflowed: "
                "look at its scales (method.*), then lower optimizer.lr."
            )
        else:
            hint = "The steps are too large. Lower optimizer.lr, or lengthen optimizer.warmup."
        if optimizer.precision == "bfloat16":
            hint += (
                " bfloat16 holds 8 significant bits: optimizer.precision=float32 tells whether it is that."
            )
        what = f"term {names} is" if len(terms) == 1 else f"terms {names} are"
        return (
            f"the loss {what} not finite at step {step + 1} (epoch {epoch}), learning rate {rate:.3g}. {hint}"
        )
