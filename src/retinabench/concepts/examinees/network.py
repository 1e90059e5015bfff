"""A multi-label network as examinee: one ResNet, one logit per concept, trained by binary cross-entropy.

The only file of `concepts` that needs PyTorch; it is imported when a network is trained, never for an examination.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from retinabench.concepts.banks.lesion_images import LesionImages
from retinabench.concepts.banks.regions import region_pictures
from retinabench.concepts.examinees.examinees import Examinee
from retinabench.core.errors import WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.data.augment import flip
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.loop import make_optimizer
from retinabench.methods.training.schedules import learning_rate
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig

PREDICT_AT_ONCE = 64


def train_network(
    pictures: NDArray[np.uint8],
    truth: NDArray[np.bool_],
    *,
    model: ModelConfig,
    optimizer: Optimizer,
    seed: int,
    progress: Progress = QUIET,
) -> nn.Module:
    """Train a network on pictures (N, size, size, 3) with the truth (N, C) of C concepts; return it in evaluation mode.

    The loss is the mean over pictures and concepts of the binary cross-entropy, without weights: reweighted classes
    would make P(yes) mean something else than a probability. Pictures are mirrored and turned by quarters at random.
    Weights, order and turns come from `seed` alone, so the same seed gives the same network on one machine.

    Raises `WorkError` where the loss is no longer finite.
    """
    network = _standardised(build_model(model, seed, outputs=truth.shape[1]), pictures)
    network.train()
    stepper = make_optimizer(network, optimizer)
    labels = torch.from_numpy(truth.astype(np.float32))
    steps = math.ceil(len(pictures) / optimizer.batch_size)
    with progress.track("Training the network", optimizer.epochs * steps, unit="steps") as advance:
        for epoch in range(optimizer.epochs):
            order = numpy_generator(seed, "order", epoch).permutation(len(pictures))
            noise = torch_generator("cpu", seed, "augment", epoch)
            # Equal parts rather than full batches: batch norm cannot work on a last batch of one picture.
            for number, rows in enumerate(np.array_split(order, steps)):
                images = _turn(flip(_tensor(pictures[rows]), noise), noise)
                loss = binary_cross_entropy_with_logits(network(images), labels[rows])
                if not torch.isfinite(loss):
                    raise WorkError(
                        f"the loss is {loss.item()} in epoch {epoch + 1}; lower the learning rate."
                    )
                for group in stepper.param_groups:
                    group["lr"] = learning_rate(epoch * steps + number, steps, optimizer)
                stepper.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                stepper.step()
                advance(1)
    return network.eval()


@torch.no_grad()
def answer(network: nn.Module, pictures: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return P(yes) (N, C) for pictures (N, size, size, 3)."""
    starts = range(0, len(pictures), PREDICT_AT_ONCE)
    logits = [network(_tensor(pictures[start : start + PREDICT_AT_ONCE])) for start in starts]
    return torch.cat(logits).double().sigmoid().numpy()


def network_examinee(network: nn.Module, images: LesionImages, *, size: int, grid: int = 1) -> Examinee:
    """Return an examinee that looks at a sample when it is asked: for banks whose pictures do not fit into memory.

    Sample k is region k % grid² of image k // grid² (`regions.region_bank`); with grid 1, image k. The answers to the image
    asked last are kept, since strategies may ask several concepts of one sample.
    """

    @lru_cache(maxsize=1)
    def answers(row: int) -> NDArray[np.float64]:
        return answer(network, region_pictures(images.picture(row, grid * size), grid))

    def examinee(sample: int, concept: str) -> float:
        row, region = divmod(sample, grid**2)
        return float(answers(row)[region, images.concepts.index(concept)])

    return examinee


class _Standardise(nn.Module):
    """Channels less their mean, divided by their deviation, as they were over the training pictures."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> the same shape, standardised."""
        return (images - self.mean) / self.deviation


def _standardised(network: nn.Module, pictures: NDArray[np.uint8]) -> nn.Module:
    channels = pictures.reshape(-1, 3)
    counts = np.stack([np.bincount(channels[:, c], minlength=256) for c in range(3)])  # exact, no float copy
    share, value = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = share @ value
    deviation = np.sqrt(np.maximum(share @ value**2 - mean**2, 1e-12))
    moments = [torch.tensor(v, dtype=torch.float32).reshape(1, 3, 1, 1) for v in (mean, deviation)]
    return nn.Sequential(_Standardise(*moments), network)


def _tensor(pictures: NDArray[np.uint8]) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, 3, H, W) in [0, 1], channels last in memory."""
    return torch.from_numpy(np.ascontiguousarray(pictures)).permute(0, 3, 1, 2).to(torch.float32).div_(255)


def _turn(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn each picture (B, 3, H, H) by a quarter with probability 1/2: with two mirrors, all eight symmetries."""
    chosen = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], images.transpose(2, 3), images)
