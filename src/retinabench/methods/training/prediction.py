"""Passes of a trained network over many images, shared by all processes, with as many images at a time as fit.

Each of n processes computes every n-th batch. A posterior over units draws the noise of a batch from the position of the
generator, which moves past the batches of the others (`sample_seeds`): the numbers are those of one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retinabench.core.errors import DivergedError, InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.dataset import Rows
from retinabench.data.loader import Batches, Work, meter_of, with_less
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.gradients import find_limit, share_limits
from retinabench.methods.training.posterior import Posterior, precision, sample_seeds
from retinabench.metrics.classification import auroc_of, nll_of
from retinabench.metrics.weighted_images import Cases

VALIDATION_BATCH = 256


def predict_rows(
    batches: Batches,
    rows: Rows,
    compute: Callable[[Tensor], Tensor],
    generator: torch.Generator,
    samples: int,
    *,
    batch_size: int,
    work: Work,
    advance: Callable[[int], None] = lambda images: None,
) -> Tensor:
    """Return what `compute` makes of the images of many rows; `rows` (N,), `compute` (B, ...) -> (N, K)."""
    limits, device, ranks = batches.limits, batches.device, distributed.current()

    def begin_again() -> None:
        generator.set_state(state)

    def in_parts(images: Tensor, most: int) -> Tensor:
        return torch.cat([compute(part).cpu().double() for part in torch.split(images, most)])

    state, meter = generator.get_state(), meter_of(device)
    if meter is not None and work not in limits.probed and len(rows):  # never on a CPU
        first, _ = next(iter(batches.source.load(batches.cut(rows, batch_size, work)[:1])))

        def measured(count: int) -> None:
            compute(first[:count])

        find_limit(measured, begin_again, limits, work, len(first), device, meter)
    share_limits(limits, work, device)
    parts, start = {}, 0
    cut = batches.cut(rows, batch_size, work)
    loaded = batches.source.load(cut[ranks.rank :: ranks.count])
    for number, chunk in enumerate(cut):
        if number % ranks.count == ranks.rank:
            images, _ = next(loaded)
            state = generator.get_state()
            # Where its memory runs out, a batch is cut, and each part draws noise of its own.
            parts[start] = with_less(partial(in_parts, images), begin_again, limits, work, len(images), device)
        else:
            sample_seeds(samples, generator)
        start += len(chunk)
        advance(len(chunk))
    return distributed.gather_rows(parts, len(rows), device)


class ValidationPlan(NamedTuple):
    """How a training validates: with so many posterior samples, after every so many epochs and after the last."""

    samples: int
    every: int


def validation_plan(run: TrainingRun, training: int, held_out: int) -> ValidationPlan:
    """Return the plan of a run, whose validation takes at most `optimizer.validation_share` of the passes of an epoch.

    Passes are counted, not seconds, so that the plan is the same on every machine and whenever a training continues: a
    forward pass of one image is one, a gradient three. Fewer samples come first, then fewer epochs.
    """
    share, samples = run.optimizer.validation_share, run.method.samples
    if share == 1 or not held_out:
        return ValidationPlan(samples, 1)
    per_image = run.method.gradients_per_example(run.optimizer) / run.optimizer.epochs
    affordable = share / (1 - share) * 3 * training * per_image / held_out  # passes over the validation split
    chosen = max(1, min(samples, int(affordable)))
    return ValidationPlan(chosen, max(1, math.ceil(chosen / affordable)))


def validation_scores(
    posterior: Posterior, batches: Batches, run: TrainingRun, epoch: int, samples: int
) -> dict[str, float]:
    """Return AUROC and NLL of the predictive mean on the validation split, an empty dictionary where there is none."""
    if not len(batches.validation):
        return {}
    generator = torch_generator(batches.device, run.seed, "validate", epoch)

    def mean(images: Tensor) -> Tensor:
        with precision(run, batches.device):
            return posterior.predict(images, samples, generator)[..., 1].mean(dim=0)[:, None]

    prob = predict_rows(
        batches, batches.validation, mean, generator, samples, batch_size=VALIDATION_BATCH, work="validation"
    )[:, 0].numpy()
    label = batches.source.targets[batches.validation].astype(np.int8)
    if not np.isfinite(prob).all():
        raise DivergedError(
            f"after epoch {epoch + 1} the network predicts values that are not finite, though its losses were "
            "finite: its weights or running statistics overflowed. Lower optimizer.lr."
        )
    images = Cases(label, prob).weighted()
    scores = {"auroc": float(auroc_of(images)), "nll": float(nll_of(images))}
    if math.isnan(scores["auroc"]) and run.optimizer.select == "auroc":
        hint = "Set optimizer.select=nll."
        raise InputError("the validation split holds one class only, so that no AUROC can choose the epoch", hint=hint)
    return scores
