"""Losses on outputs (B, O) and labels (B,)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from retinabench.methods.training.likelihood import negative_log_likelihood


class Whole(NamedTuple):
    """A batch before it is cut: the share of its referable images and its size, scalars."""

    referable_share: Tensor
    size: Tensor


_whole: ContextVar[Whole | None] = ContextVar("whole", default=None)


@contextmanager
def whole_batch(referable_share: Tensor, size: Tensor) -> Iterator[None]:
    """Let `class_weights` and `batch_size` speak of a whole batch while the training loop works on a part of it.

    Otherwise the loss of a batch would depend on how it is cut into micro-batches and processes.
    """
    token = _whole.set(Whole(referable_share, size))
    try:
        yield
    finally:
        _whole.reset(token)


def batch_size(labels: Tensor) -> Tensor:
    """Return the number of `labels`, or within `whole_batch` that of the whole batch; a scalar, float."""
    whole = _whole.get()
    return torch.full((), float(len(labels)), device=labels.device) if whole is None else whole.size


def class_weights(labels: Tensor) -> Tensor:
    """Weigh each example by 1 / (K p(k)), K = 2 classes, p(k) the share of its class k in the batch. (B,) -> (B,).

    The loss mean then is L = (1 / Kn) Σ CE / p(k), equation A.1 of the Retina Benchmark. A batch with one class left
    gives every example 1/2, as there. Within `whole_batch`, p(k) is the share in that.
    """
    whole = _whole.get()
    positives = labels.mean() if whole is None else whole.referable_share
    share = torch.where(labels > 0.5, positives, 1 - positives)
    return 0.5 / share


def cross_entropy(logits: Tensor, labels: Tensor, reweight: str) -> Tensor:
    """Mean negative log-likelihood in nats (`likelihood.py`), reweighted by class (`minibatch`) or not (`none`).

    Only two classes, one logit (B, 1), can be reweighted.
    """
    loss = negative_log_likelihood(logits.float(), labels)
    return (loss * class_weights(labels)).mean() if reweight == "minibatch" else loss.mean()
