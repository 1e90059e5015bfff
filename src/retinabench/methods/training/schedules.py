"""Schedules of the learning rate and of the weight of the KL divergence: pure functions of the step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from retinabench.methods.settings import Optimizer

Annealing = Literal["none", "linear", "cyclical", "linear_released"]
CYCLES = 4
RELEASED_EPOCHS = 200


def learning_rate(step: int, steps_per_epoch: int, config: Optimizer) -> float:
    """Return the learning rate of 0-based `step`.

    During the warm-up it rises linearly from 0 to `lr`. The schedule `step`: times 0.2 at one and at two thirds of the
    epochs. `linear`: from `lr` down to `final_lr` * `lr`, on a line that starts at step 0 and ends `warmup` epochs before
    the training does, as in the Retina Benchmark. `cosine`: from `lr` at the end of the warm-up down to 0.

    Args:
        step: 0-based training step.
        steps_per_epoch: Steps of an epoch.
        config: Settings of the optimiser: lr, schedule, warm-up and epochs.
    """
    warm = round(config.warmup * steps_per_epoch)
    total = config.epochs * steps_per_epoch
    if step < warm:
        return config.lr * step / warm
    if config.schedule == "step":
        passed = sum(step >= total * third // 3 for third in (1, 2))
        return config.lr * 0.2**passed
    decaying = max(1, total - warm)
    if config.schedule == "linear":
        left = 1 - min(1.0, step / decaying)
        return config.lr * (left * (1 - config.final_lr) + config.final_lr)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / decaying)))
    return config.lr


def kl_weight(step: int, steps_per_epoch: int, epochs: int, annealing: Annealing) -> float:
    """Return the weight of the KL divergence at 0-based `step`.

    Args:
        step: 0-based training step.
        steps_per_epoch: Steps of an epoch.
        epochs: Epochs of the training.
        annealing: `none`: 1. `linear`: rises to 1 over the first half of the training and stays. `cyclical`: the same in
            each of four cycles. `linear_released`: min(1, (step + 1) / (200 epochs)), as in the released Retina Benchmark,
            which a training of 90 epochs leaves at 0.45.

    References:
        Bowman et al. (2016), "Generating sentences from a continuous space"; Fu et al. (2019), "Cyclical annealing
        schedule".
    """
    total = epochs * steps_per_epoch
    if annealing == "linear":
        return min(1.0, 2 * (step + 1) / total)
    if annealing == "cyclical":
        return min(1.0, 2 * ((step * CYCLES) % total + CYCLES) / total)
    if annealing == "linear_released":
        return min(1.0, (step + 1) / (RELEASED_EPOCHS * steps_per_epoch))
    return 1.0
