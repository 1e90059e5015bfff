"""Losses on logits (B, 1) and labels (B,)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

_referable_share: ContextVar[Tensor | None] = ContextVar("referable_share", default=None)


@contextmanager
def whole_batch(referable_share: Tensor) -> Iterator[None]:
    """Weigh classes by their share of a whole batch, a scalar, while the training loop works on a part of it.

    Otherwise the loss of a batch would depend on how it is cut into micro-batches and processes.
    """
    token = _referable_share.set(referable_share)
    try:
        yield
    finally:
        _referable_share.reset(token)


def class_weights(labels: Tensor) -> Tensor:
    """Weigh each example by 1 / (K p(k)), K = 2 classes, p(k) the share of its class k in the batch. (B,) -> (B,).

    The loss mean then is L = (1 / Kn) Σ CE / p(k), equation A.1 of the Retina Benchmark. A batch with one class left
    gives every example 1/2, as there. Within `whole_batch`, p(k) is the share in that.
    """
    whole = _referable_share.get()
    positives = labels.mean() if whole is None else whole
    share = torch.where(labels > 0.5, positives, 1 - positives)
    return 0.5 / share


def cross_entropy(logits: Tensor, labels: Tensor, reweight: str) -> Tensor:
    """Mean binary cross-entropy in nats of logits (B, 1), reweighted by class (`minibatch`) or not (`none`)."""
    loss = binary_cross_entropy_with_logits(logits.squeeze(1).float(), labels, reduction="none")
    return (loss * class_weights(labels)).mean() if reweight == "minibatch" else loss.mean()
