"""A model whose posterior is known: linear regression with known noise, y = x·w + σ ε, w ~ N(0, s²)."""

import math

import numpy as np
import torch
from torch import nn

from retinabench.data.dataset import ArrayDataset
from retinabench.data.loader import Batches
from retinabench.experiments.config import load_run
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.density import point_batches
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Gaussian

POINTS, FEATURES, NOISE, PRIOR = 20, 2, 1.0, 0.5


class LinearGaussian(nn.Module):
    """x (B, 2) -> mean x·w and the raw deviation of the known noise, (B, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURES, 1, bias=False)
        nn.init.zeros_(self.fc.weight)

    def forward(self, x):
        raw = x.new_full((len(x),), math.log(math.expm1(NOISE)))
        return torch.stack([self.fc(x)[:, 0], raw], dim=1)


class ManySteps(Batches):
    """The points `REPEATS` times per epoch: an epoch of one step would be mostly bookkeeping."""

    REPEATS = 20

    @property
    def steps(self):
        return self.REPEATS * super().steps

    def epoch(self, number, rank=0, ranks=1):
        for k in range(self.REPEATS):
            yield from super().epoch(self.REPEATS * number + k)


def make_data() -> TargetData:
    random = np.random.default_rng(0)
    x = random.normal(size=(POINTS, FEATURES)) @ np.array([[1.0, 0.3], [0.0, 1.0]])
    points = ArrayDataset(x, x @ [0.5, -1.0] + random.normal(size=POINTS), np.full(POINTS, "train"))
    return TargetData(points, points)


def truth(batches: Batches) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (D,) and covariance (D, D) of the posterior."""
    x, y = batches.source.inputs.double().numpy(), batches.source.labels.double().numpy()
    covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(FEATURES) / PRIOR**2)
    return covariance @ x.T @ y / NOISE**2, covariance


def make_run(method: str, *words: str, batch_size: int = POINTS, epochs: int = 1, seed: int = 0):
    """Return a run that targets the posterior, with a constant learning rate and no momentum unless said otherwise."""
    settings = [
        f"optimizer.l2={1 / (2 * POINTS * PRIOR**2)}", "optimizer.l2_on=everything", "optimizer.reweight=none",
        "optimizer.augment=none", "optimizer.select=last", "optimizer.schedule=constant", "optimizer.warmup=0",
        f"optimizer.batch_size={batch_size}", f"optimizer.epochs={epochs}", "optimizer.momentum=0",
        f"seed={seed}", f"method.name={method}",
    ]  # fmt: skip
    return load_run(None, [*settings, *words], data="d")


def fitted(run, checkpoint: Checkpoint | None = None):
    batches = ManySteps(**vars(point_batches(make_data(), run.optimizer.batch_size, run.seed, torch.device("cpu"))))
    checkpoint = checkpoint or Checkpoint(interval=1e9)
    posterior = METHODS[run.method.name].fit(LinearGaussian(), batches, run, checkpoint, Gaussian())
    return posterior, batches


def weights(posterior) -> np.ndarray:
    """Return the samples (S, D) of a collected posterior."""
    return torch.stack([sample["fc.weight"][0] for sample in posterior.samples]).double().numpy()
