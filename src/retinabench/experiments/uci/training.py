"""One split of a UCI set, trained and predicted by an ordinary method, and scored in the target's own units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from retinabench.core.errors import DivergedError
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import JsonObject
from retinabench.data.datasets.uci import SETS, Regression
from retinabench.data.loader import array_batches
from retinabench.experiments.uci.scores import SplitScores, split_scores
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Gaussian
from retinabench.models.build import initialise
from retinabench.models.networks.mlp import MLP

LIKELIHOOD = Gaussian(
    floor=1e-3
)  # of the standardised target: a variance of at least 1e-6, as published for ensembles
BATCHES = ((2000, 32), (math.inf, 128))  # training rows up to which, and rows per batch
SEEDS = 1000  # of one comparison; more than any set has splits
CPU = torch.device("cpu")

# By the names of the published table.
SETTINGS: dict[str, JsonObject] = {
    "dropout": {"name": "dropout", "rate": 0.05, "samples": 200},
    "variational": {
        "name": "mfvi",
        "prior_mean": "zero",
        "prior_stddev": 1.0,
        "stddev_mean_init": 0.05,
        "annealing": "none",
        "samples": 200,
    },
    "ensemble": {"name": "ensemble", "members": 5, "member": "map"},
}
TITLES = {"dropout": "MC dropout", "variational": "Mean-field VI", "ensemble": "Deep ensemble"}
OPTIMIZER = {
    "name": "adam",
    "lr": 0.01,
    "momentum": 0.9,
    "l2": 0.0,
    "schedule": "linear",
    "warmup": 0.0,
    "reweight": "none",
    "augment": "none",
    "select": "last",
}


@dataclass(frozen=True, eq=False)
class SplitTraining:
    """The training of one method on one split.

    Args:
        data: The set.
        method: A name of `SETTINGS`.
        split: Number of the split.
        epochs: Passes over the training rows.
        seed: Seed of the comparison.
    """

    data: Regression
    method: str
    split: int
    epochs: int
    seed: int


def train_and_score(training: SplitTraining) -> SplitScores:
    """Train on the training rows of a split, predict its test rows, and score the predictions.

    Inputs and target are standardised by the training rows alone.

    Args:
        training: The set, the split and the method.

    Returns:
        The scores of the test rows.

    Raises:
        DivergedError: The training diverged.
    """
    data = training.data
    train, test = data.train[training.split], data.test[training.split]
    inputs, targets = data.inputs[train], data.targets[train]
    mean, std = inputs.mean(axis=0), inputs.std(axis=0)
    std[std <= 1e-12 * np.abs(mean)] = 1  # a constant column: its std is not exactly 0 after rounding
    center, scale = targets.mean(), targets.std()
    where = f"{data.name}, split {training.split}, {TITLES[training.method]}"
    try:
        predicted = _predict(
            run_of(training),
            ((inputs - mean) / std).astype(np.float32),
            ((targets - center) / scale).astype(np.float32),
            ((data.inputs[test] - mean) / std).astype(np.float32),
            SETS[data.name].hidden,
        ).astype(np.float64)
    except DivergedError as error:
        raise DivergedError(f"{where}: {error}") from None
    if not np.isfinite(predicted).all():
        raise DivergedError(f"{where}: predictions are not finite: the training diverged")
    means, stds = center + scale * predicted[..., 0], scale * predicted[..., 1]
    return split_scores(data.targets[test], means, stds**2)


def run_of(training: SplitTraining) -> TrainingRun:
    """Return the settings of a training; splits have different seeds."""
    rows = training.data.train.shape[1]
    batch_size = next(size for most, size in BATCHES if rows <= most)
    return TrainingRun(
        method=SETTINGS[training.method],
        optimizer=Optimizer(**OPTIMIZER, batch_size=batch_size, epochs=training.epochs),
        seed=SEEDS * training.seed + training.split,
    )


def _predict(
    run: TrainingRun,
    inputs: NDArray[np.float32],
    targets: NDArray[np.float32],
    test: NDArray[np.float32],
    hidden: int,
) -> NDArray[np.float32]:
    """Train on inputs (n, D) and targets (n,); return mean and std (S, m, 2) of the test inputs (m, D)."""
    method = METHODS[run.method.name]
    if is_composed(method):
        members = [_predict(member, inputs, targets, test, hidden) for member in method.member_runs(run)]
        return np.concatenate(members)
    network = MLP(inputs.shape[1], hidden, LIKELIHOOD.outputs, nn.ReLU)
    network.initialisation = "glorot_uniform"  # type: ignore[assignment]  # read by `initialise`
    initialise(network, torch_generator(CPU, run.seed, "weights"))
    batches = array_batches(inputs, targets, run.optimizer.batch_size, run.seed, CPU)
    posterior = method.fit(network, batches, run, Checkpoint(), LIKELIHOOD)
    generator = torch_generator(CPU, run.seed, "predict")
    with torch.no_grad():
        predicted = posterior.predict(torch.from_numpy(test), run.method.samples, generator)
    return np.asarray(predicted.numpy(), np.float32)
