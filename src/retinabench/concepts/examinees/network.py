"""A multi-label network as examinee: one ResNet with one logit per concept, trained by binary cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from retinabench.concepts.banks.lesion_images import region_images
from retinabench.concepts.examinees.answers import Examinee
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.data.augment import flip
from retinabench.data.dataset import LesionImages
from retinabench.data.loader import Batches, array_batches
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import MultiLabel
from retinabench.methods.training.loop import train
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig

PREDICT_AT_ONCE = 64


class ConceptBatches(Batches):
    """Batches of images in memory with labels (B, C), all of which train.

    Images are mirrored and turned by quarters at random: with the two mirrors, all eight symmetries of the square. An epoch
    is cut into equal parts rather than full batches, since batch norm cannot work on a last batch of one image.
    """

    @property
    def steps(self) -> int:
        """Batches per epoch."""
        return math.ceil(len(self.train) / self.batch_size)

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch: images (B, 3, H, W) in [0, 1] and labels (B, C), float32.

        Args:
            number: The epoch, from 0.
            rank: This process.
            ranks: Processes that train together, each on its share of every batch.

        Yields:
            Images (B, 3, H, W) in [0, 1] and labels (B, C), both float32.
        """
        order = numpy_generator(self.seed, "order", number).permutation(len(self.train))
        noise = torch_generator("cpu", self.seed, "augment", number)
        for stored, labels in self.source.load(np.array_split(order, self.steps)):
            images = _quarter_turn(flip(_tensor(stored.numpy()), noise), noise)
            own = np.array_split(np.arange(len(labels)), ranks)[rank]
            yield images[own] if ranks > 1 else images, labels[own] if ranks > 1 else labels


def train_network(
    images: NDArray[np.uint8],
    truth: NDArray[np.bool_],
    *,
    model: ModelConfig,
    optimizer: Optimizer,
    seed: int,
    checkpoint: Checkpoint,
) -> nn.Module:
    """Train a network on images with known concepts; return it in evaluation mode.

    The loss is the mean over images and concepts of the binary cross-entropy, without class weights: with them, P(yes) would
    no longer be a probability. Weights, order and symmetries depend on ``seed`` alone.

    Args:
        images: (N, size, size, 3), uint8.
        truth: (N, C), whether each concept is present.
        model: The network.
        optimizer: Settings of the training loop.
        seed: Seed of all randomness.
        checkpoint: Where the state of the training is kept, so that a killed one continues.

    Returns:
        The trained network.

    Raises:
        DivergedError: The loss is no longer finite.
    """
    network = _standardised(build_model(model, seed, outputs=truth.shape[1]), images)
    settings = optimizer.model_copy(update={"select": "last", "reweight": "none"})
    posterior = PointPosterior(network, MultiLabel(truth.shape[1]))

    cpu = torch.device("cpu")
    arrays = array_batches(images, truth.astype(np.float32), optimizer.batch_size, seed, cpu)
    batches = ConceptBatches(**vars(arrays))
    return train(posterior, batches, TrainingRun(optimizer=settings, seed=seed), checkpoint).model.eval()


@torch.no_grad()
def answer(network: nn.Module, images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return P(yes), (N, C), for images (N, size, size, 3)."""
    starts = range(0, len(images), PREDICT_AT_ONCE)
    logits = [network(_tensor(images[start : start + PREDICT_AT_ONCE])) for start in starts]
    return torch.cat(logits).double().sigmoid().numpy()


def network_examinee(network: nn.Module, images: LesionImages, *, size: int, grid: int = 1) -> Examinee:
    """Return an examinee that reads a sample when it is asked about it, for banks larger than memory.

    Sample k is region k % grid² of image k // grid² (`lesion_images.region_bank`). The answers to the image asked about last are
    cached, since strategies may ask several concepts of one sample.

    Args:
        network: A trained network.
        images: The images of the bank.
        size: Side of each sample, in pixels.
        grid: Regions per side of an image; 1 for whole images.

    Returns:
        The examinee.
    """

    @lru_cache(maxsize=1)
    def answers(row: int) -> NDArray[np.float64]:
        return answer(network, region_images(images.image(row, grid * size), grid))

    def examinee(sample: int, concept: str) -> float:
        row, region = divmod(sample, grid**2)
        return float(answers(row)[region, images.concepts.index(concept)])

    return examinee


class _Standardise(nn.Module):
    """Channels minus their mean over the training images, divided by their std."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] -> the same shape, standardised."""
        return (images - self.mean) / self.std


def _standardised(network: nn.Module, images: NDArray[np.uint8]) -> nn.Module:
    channels = images.reshape(-1, 3)
    counts = np.stack([np.bincount(channels[:, c], minlength=256) for c in range(3)])  # exact, no float copy
    share, value = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = share @ value
    std = np.sqrt(np.maximum(share @ value**2 - mean**2, 1e-12))
    moments = [torch.tensor(v, dtype=torch.float32).reshape(1, 3, 1, 1) for v in (mean, std)]
    return nn.Sequential(_Standardise(*moments), network)


def _tensor(images: NDArray[np.uint8]) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, 3, H, W) in [0, 1], channels last in memory."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).to(torch.float32).div_(255)


def _quarter_turn(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn each image (B, 3, H, H) by a quarter with probability 1/2."""
    chosen = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], images.transpose(2, 3), images)
