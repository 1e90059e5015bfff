"""The loss of one step's batch and its gradient, in as many parts as the memory asks for.

The loss of a batch that is cut is that of the whole batch, and so is its gradient, up to the order of sums: every term is
weighted by its share of the images. Two things belong to a part: the statistics of batch norm, and the noise of methods that
draw it in a forward pass, since the parts take their draws one after the other from the stream of the epoch. Methods that
draw the weights of a step from a stream of its own (`ivon`, `vogn`) use the same weights in every part.
Where memory runs out, the whole step begins again with smaller parts, from the same position of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.core.errors import DivergedError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches, BatchLimits, Meter, Work, meter_of, probe, release, with_less
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.likelihood import Likelihood
from retinabench.models.stochastic.drawing import use_generator

NEVER = 2**62
LIKELIHOOD = "cross_entropy"
EVERY = 50  # steps between two checks on a CPU; on a GPU a check would wait for the device


class BatchInfo(NamedTuple):
    """A batch before it is cut into micro-batches and processes: the loss must not depend on the cut.

    step: 0-based number of the training step. size: images, a scalar float. positive_share: share of label 1, a scalar,
    in the batch or, for constant weights, in the training set; used by class weights alone. reweight: as in `Optimizer`.
    """

    step: int
    size: Tensor
    positive_share: Tensor
    reweight: str = "none"

    @classmethod
    def of(cls, labels: Tensor, step: int = 0, reweight: str = "none") -> BatchInfo:
        """Describe a batch that is processed at once."""
        return cls(step, torch.full((), float(len(labels)), device=labels.device), labels.float().mean(), reweight)


# (inputs, labels, batch) -> the named terms of the loss, called for every part of a batch (`optimizer.accumulate`, several
# processes, little memory). A term of shape (B,) is the loss of every image of the part, which `gradients` weighs by class and
# averages. A scalar is a mean that was weighed already (`cross_entropy`), or a penalty that does not depend on the images.
Objective = Callable[[Tensor, Tensor, BatchInfo], dict[str, Tensor]]


def class_weights(labels: Tensor, positive_share: Tensor) -> Tensor:
    """Weigh labels (B,) by 1 / (K p(k)), K = 2 classes, p(k) the share of class k: weights (B,).

    The mean loss then is L = (1 / Kn) Σ CE / p(k). A batch with one class left gives every example 1/2.

    References:
        Band et al. (2021), "Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks", equation A.1.
    """
    return 0.5 / torch.where(labels > 0.5, positive_share, 1 - positive_share)


def cross_entropy(outputs: Tensor, labels: Tensor, likelihood: Likelihood, batch: BatchInfo) -> Tensor:
    """Return the mean negative log-likelihood of outputs (B, O) in nats, a scalar, computed in float32 and weighted by class."""
    if batch.reweight == "none":
        return likelihood.mean_loss(outputs.float(), labels)
    return mean_loss(likelihood.negative_log_likelihood(outputs.float(), labels), labels, batch)


def mean_loss(losses: Tensor, labels: Tensor, batch: BatchInfo) -> Tensor:
    """Return the mean of losses (B,), weighted by `class_weights` unless `reweight` is `none`."""
    if batch.reweight == "none":
        return losses.mean()
    return (losses * class_weights(labels, batch.positive_share)).mean()


Terms = list[tuple[dict[str, Tensor], int]]  # of each part, with its number of images


class Losses:
    """The terms of the losses of an epoch: their sums over images, and the first step at which each was NaN or infinite."""

    def __init__(self, run: TrainingRun, batches: Batches, schedule: Callable[[int], float]) -> None:
        self._run, self._batches, self._schedule = run, batches, schedule
        self._unread: list[tuple[str, Tensor, int, int]] = []
        self._sums: dict[str, float] = {}
        self._first: dict[str, int] = {}
        # Other processes would wait for one that raised, and a GPU for the host.
        self._often = batches.device.type == "cpu" and distributed.current().count == 1

    def record(self, parts: Terms, step: int) -> None:
        self._unread += [(name, term, images, step) for terms, images in parts for name, term in terms.items()]
        if self._often and step % EVERY == EVERY - 1:
            self.check()

    def check(self) -> None:
        """Raise `DivergedError` where a term of any process was not finite."""
        values = torch.stack([term.double() for _, term, _, _ in self._unread]).tolist() if self._unread else []
        for (name, _, images, step), value in zip(self._unread, values, strict=True):
            self._sums[name] = self._sums.get(name, 0.0) + value * images
            if not math.isfinite(value):
                self._first.setdefault(name, step)
        self._unread = []
        first = torch.tensor([self._first.get(name, NEVER) for name in self._sums], device=self._batches.device)
        steps = distributed.smallest(first).tolist()
        if (step := min(steps, default=NEVER)) < NEVER:
            terms = [name for name, at in zip(self._sums, steps, strict=True) if at == step]
            raise DivergedError(self._explain(terms, step))

    def means(self) -> dict[str, float]:
        """Return the mean of every term over the images of the epoch, which all processes ask for together."""
        self.check()
        sums = torch.tensor(list(self._sums.values()), dtype=torch.float64, device=self._batches.device)
        means = distributed.total(sums) / len(self._batches.train)
        return dict(zip(self._sums, means.tolist(), strict=True))

    def _explain(self, terms: list[str], step: int) -> str:
        method = self._run.method.name
        if step == 0:
            hint = (
                "No step was taken yet: look at the images and labels (retinabench inspect), "
                f"and at the starting values of the method '{method}'."
            )
        elif LIKELIHOOD in self._sums and LIKELIHOOD not in terms:
            hint = (
                f"The likelihood was still finite, so a penalty of the method '{method}' overflowed: "
                "look at its scales (method.*), then lower optimizer.lr."
            )
        else:
            hint = "The steps are too large. Lower optimizer.lr, or lengthen optimizer.warmup."
        if self._run.optimizer.precision == "bfloat16":
            hint += " bfloat16 holds 8 significant bits: optimizer.precision=float32 tells whether it is that."
        names = " and ".join(f"'{name}'" for name in terms)
        what = f"term {names} is" if len(terms) == 1 else f"terms {names} are"
        place = f"step {step + 1} (epoch {step // self._batches.steps + 1})"
        return f"the loss {what} not finite at {place}, learning rate {self._schedule(step):.3g}. {hint}"


def describe_batch(labels: Tensor, step: int, batches: Batches, reweight: str) -> BatchInfo:
    """Describe the batch of all processes, of which this one has the labels (B,); all call this together."""
    size = _scalar(float(len(labels)), labels.device)
    if reweight == "minibatch":
        positive, whole = distributed.total(torch.stack([labels.sum(), size]))
        return BatchInfo(step, whole, positive / whole, reweight)
    if distributed.current().count > 1:
        size = distributed.total(size.clone())
    share = _scalar(batches.positive_share if reweight == "constant" else math.nan, labels.device)
    return BatchInfo(step, size, share, reweight)


@cache
def _scalar(value: float, device: torch.device) -> Tensor:
    """Return a scalar float that every step reads and none changes: to make one costs as much as a small layer."""
    return torch.full((), value, device=device)


@cache
def _share(part: int, batch: int, device: torch.device) -> float:
    """Return the share of a part of a batch as the device divides, which may be just below 1 for the whole."""
    return float(part / _scalar(float(batch), device))


def gradients(
    objective: Objective,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    batch: BatchInfo,
    noise: torch.Generator,
    limits: BatchLimits,
    accumulate: int,
) -> Terms:
    """Leave the gradient of a batch of images (B, ...) in the parameters; return the terms of every part, as scalars."""
    state, restore_buffers = noise.get_state(), _kept_buffers(model)

    def begin_again() -> None:
        noise.set_state(state)
        restore_buffers()

    def attempt(most: int) -> Terms:
        optimizer.zero_grad(set_to_none=True)
        parts = min(max(min(accumulate, max(1, size // 2)), -(-size // most)), max(1, size // least))
        result: Terms = []
        whole = [images], [labels]
        cut = (images.tensor_split(parts), labels.tensor_split(parts)) if parts > 1 else whole
        for some, theirs in zip(*cut, strict=True):
            if count := len(theirs):  # of a last batch smaller than the number of processes, some get nothing
                terms = {
                    name: mean_loss(term.float(), theirs, batch) if term.ndim else term
                    for name, term in objective(some, theirs, batch).items()
                }
                first, *others = terms.values()
                share = _share(count, size, device) if alone else count / batch.size
                loss = sum(others, first)
                torch.autograd.backward(loss if alone and share == 1 else loss * share)
                result.append(({name: term.detach() for name, term in terms.items()}, count))
        return result

    size, device, least, alone = len(labels), labels.device, _least_part(model), distributed.current().count == 1
    return with_less(attempt, begin_again, limits, "training", max(1, size), device, least)


def _kept_buffers(model: nn.Module) -> Callable[[], None]:
    """Return a function that gives the buffers of a network, such as running statistics, their present values again."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def restore() -> None:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)

    return restore


def _least_part(model: nn.Module) -> int:
    """Return the fewest images of a part of a training batch: batch norm needs two."""
    return 2 if any(isinstance(module, _BatchNorm) for module in model.modules()) else 1


def probe_limit(
    objective: Objective,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    run: TrainingRun,
    epoch: int,
    meter: Meter | None = None,
) -> None:
    """Find how many images of a training batch fit the memory, unless that is known; on a CPU nothing is done.

    A few images of the epoch's first batch are computed forward and backward. They leave no trace: no step is taken, and
    running statistics and noise are put back.
    """
    limits, device = batches.limits, batches.device
    meter = meter or meter_of(device)
    if "training" in limits.probed or meter is None:
        return
    ranks = distributed.current()
    images, labels = next(iter(batches.epoch(epoch, ranks.rank, ranks.count)))
    batch = describe_batch(labels, epoch * batches.steps, batches, run.optimizer.reweight)
    noise = torch_generator(device, run.seed, "probe")
    use_generator(model, noise)
    model.train()
    restore_buffers = _kept_buffers(model)

    def compute(count: int) -> None:
        gradients(objective, model, optimizer, images[:count], labels[:count], batch, noise, BatchLimits(), 1)

    def put_back() -> None:
        optimizer.zero_grad(set_to_none=True)
        restore_buffers()

    # Momentum, and Adam's second moment: twice the parameters that are trained.
    reserved, size = sum(2 * p.nbytes for group in optimizer.param_groups for p in group["params"]), max(1, len(labels))
    find_limit(compute, put_back, limits, "training", size, device, meter, _least_part(model), reserved)
    share_limits(limits, "training", device)


def find_limit(
    compute: Callable[[int], None],
    put_back: Callable[[], None],
    limits: BatchLimits,
    work: Work,
    size: int,
    device: torch.device,
    meter: Meter,
    least: int = 1,
    reserved: int = 0,
) -> None:
    """Record how many of `size` images `compute` takes at a time; `put_back` removes its traces."""
    most = probe(compute, size, meter, least, reserved)
    put_back()
    release(device)
    limits.probed.append(work)
    if most < size:
        limits.set(work, most, f"{most} of {size} images of a batch fit the memory of {device}")


def share_limits(limits: BatchLimits, work: Work, device: torch.device) -> None:
    """Give every process the smallest limit of all, so that they cut alike and the first one records it."""
    if distributed.current().count == 1:
        return
    ours = limits.of(work, 2**31)
    least = int(distributed.smallest(torch.tensor(ours, device=device)))
    if least < ours:
        limits.set(work, least, "another process has less memory")
