"""Learning-rate schedules: pure functions of the step, after a linear warm-up from 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinabench.methods.settings import Optimizer


def learning_rate(step: int, steps_per_epoch: int, config: Optimizer) -> float:
    """Return the learning rate of 0-based `step`.

    warm-up: lr * step / warm-up steps. step: x0.2 at one and at two thirds of the epochs. linear: from lr down to
    `final_lr` * lr; its line is counted from step 0 and ends `warmup` epochs before the training does, as in the
    Retina Benchmark. cosine: from lr at the warm-up's end down to 0.
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
