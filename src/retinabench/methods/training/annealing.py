"""The weight of the KL term over a training: a pure function of the step."""

from __future__ import annotations

from typing import Literal

Annealing = Literal["none", "linear", "cyclical", "linear_released"]

CYCLES = 4
RELEASED_EPOCHS = 200


def kl_weight(step: int, steps_per_epoch: int, epochs: int, annealing: Annealing) -> float:
    """Return the weight of the KL at 0-based `step`.

    linear: rises to 1 over the first half of the training (as Bowman et al. 2015 warm up), and stays. cyclical: the
    same in each of four cycles (Fu et al. 2019), so that it falls back to 0 three times. linear_released: the released
    Retina Benchmark, min(1, (step + 1) / (200 epochs)), which a training of 90 epochs leaves at 0.45. none: 1.
    """
    total = epochs * steps_per_epoch
    if annealing == "linear":
        return min(1.0, 2 * (step + 1) / total)
    if annealing == "cyclical":
        return min(1.0, 2 * ((step * CYCLES) % total + CYCLES) / total)
    if annealing == "linear_released":
        return min(1.0, (step + 1) / (RELEASED_EPOCHS * steps_per_epoch))
    return 1.0
