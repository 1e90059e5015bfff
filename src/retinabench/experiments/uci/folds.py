"""K training sets of one size, the rows on which each is judged, and their standardisation by training rows alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from retinabench.data.datasets.uci import Floats, Regression, Rows


@dataclass(frozen=True)
class Fold:
    """Standardised inputs and targets of K splits, ready to be trained on at once.

    inputs: (K, n, D), targets: (K, n): the training rows, mean 0 and deviation 1 over the rows of each split.
    held_inputs: (K, m, D), by the training rows' mean and deviation. held_target: (K, m) in the target's own units.
    centre, scale: (K,) mean and deviation of the training targets: own units = centre + scale * standardised.
    """

    inputs: Tensor
    targets: Tensor
    held_inputs: Tensor
    held_target: Floats
    centre: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.inputs)

    def own_units(self, means: Tensor) -> Floats:
        """Turn standardised predictions (T, K, m) into the target's own units."""
        values: Floats = self.centre[:, None] + self.scale[:, None] * means.numpy().astype(np.float64)
        return values


def make_fold(data: Regression, train: Rows, held: Rows) -> Fold:
    """Standardise the rows of K splits: `train` (K, n) and `held` (K, m). A constant column stays as it is, centred."""
    inputs, target = data.inputs[train], data.targets[train]
    middle, spread = inputs.mean(axis=1, keepdims=True), inputs.std(axis=1, keepdims=True)
    # A constant's mean is rounded, hence its deviation is not exactly 0.
    spread[spread <= 1e-12 * np.abs(middle)] = 1
    centre, scale = target.mean(axis=1), target.std(axis=1)
    return Fold(
        inputs=_single((inputs - middle) / spread),
        targets=_single((target - centre[:, None]) / scale[:, None]),
        held_inputs=_single((data.inputs[held] - middle) / spread),
        held_target=data.targets[held],
        centre=centre,
        scale=scale,
    )


def final_fold(data: Regression) -> Fold:
    """Return the fold that is reported: all training rows, judged on the test rows."""
    return make_fold(data, data.train, data.test)


def tuning_fold(data: Regression) -> Fold:
    """Return the fold on which settings are chosen: four fifths of the training rows, judged on the last fifth.

    No test row enters: neither in the choice nor in the standardisation.
    """
    end = int(0.8 * data.train.shape[1])
    return make_fold(data, data.train[:, :end], data.train[:, end:])


def _single(values: Floats) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
