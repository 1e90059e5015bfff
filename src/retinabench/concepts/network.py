"""An examinee that is a network: trained on the images that are not asked about, or untrained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.core.results import JsonObject
from retinabench.data.dataset import Rows
from retinabench.data.loader import ArraySource, Batches, ImageSource, Source, channel_statistics, flip
from retinabench.data.prepared import Prepared
from retinabench.experiments.config import find
from retinabench.experiments.execution import Resources
from retinabench.experiments.features import Extractor, feature_scale, trunk_features
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import MultiLabel
from retinabench.methods.training.loop import train
from retinabench.models.build import build_model, set_arithmetic
from retinabench.models.foreign import check_outputs
from retinabench.models.settings import SCALES, ModelConfig

PREDICT_AT_ONCE = 64
OTHER_SIZE = "Choose another --size."
CPU = Resources("cpu")


@dataclass(frozen=True, eq=False)
class ConceptNetwork:
    """A trained network that answers about images; shapes: `network` (B, C)."""

    network: nn.Module
    inputs: Callable[[NDArray[np.uint8]], Tensor]

    @torch.no_grad()
    def answer(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return P(yes), (N, C), for images (N, size, size, 3)."""
        starts = range(0, len(images), PREDICT_AT_ONCE)
        logits = [self.network(self.inputs(images[start : start + PREDICT_AT_ONCE])) for start in starts]
        return torch.cat(logits).double().sigmoid().cpu().numpy()

    def answer_rows(self, data: Prepared, rows: Rows) -> NDArray[np.float64]:
        """Return P(yes), (len(rows), C), for samples of a prepared folder, few of which are in memory at a time."""
        starts = range(0, len(rows), PREDICT_AT_ONCE)
        return np.concatenate([self.answer(data.images(rows[k : k + PREDICT_AT_ONCE])) for k in starts])


class ConceptBatches(Batches):
    """Batches of images with labels (B, C), NaN where unknown, in eight symmetries.

    Images are mirrored and turned by quarters at random: with the two mirrors, all eight symmetries of the square. An epoch
    is cut into equal parts rather than full batches, since batch norm cannot work on a last batch of one image.
    """

    source: Source

    @cached_property
    def steps(self) -> int:
        return math.ceil(len(self.train) / self.batch_size)

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch: images (B, 3, H, W) in [0, 1] and labels (B, C), float32."""
        assert isinstance(self.source, ImageSource)
        order = self.train[numpy_generator(self.seed, "order", number).permutation(len(self.train))]
        noise = torch_generator(self.device, self.seed, "augment", number)
        for stored, labels in self.source.stored(np.array_split(order, self.steps)):
            images = _quarter_turn(flip(_tensor(stored.to(self.device, non_blocking=True)), noise), noise)
            own = np.array_split(np.arange(len(labels)), ranks)[rank] if ranks > 1 else slice(None)
            yield images[own], labels.to(self.device, non_blocking=True)[own]


def default_optimizer(model: ModelConfig, concepts: int, batch: int, epochs: int | None = None) -> Optimizer:
    """Return the settings of a training: those of the presets `real/frozen` and `real/finetuned` for pretrained networks.

    The loss is a mean over C concepts. With C times the learning rate and the C-th part of the L2 factor, a linear head learns
    each concept as the preset learns its one label.
    """
    if model.weights is None:
        return Optimizer(
            name="adam", lr=0.002, momentum=0.9, epochs=epochs or 40, batch_size=batch, select="last", reweight="none"
        )
    preset = "real/frozen" if model.trained == "head" else "real/finetuned"
    settings: JsonObject = find(preset)[1]["optimizer"]
    if model.trained == "head":
        settings |= {"lr": settings["lr"] * concepts, "l2": settings["l2"] / concepts}
    return Optimizer(**settings | ({"epochs": epochs} if epochs else {}))


def train_network(
    data: Prepared,
    rows: Rows,
    *,
    model: ModelConfig,
    optimizer: Optimizer,
    seed: int,
    checkpoint: Checkpoint,
    resources: Resources = CPU,
) -> ConceptNetwork:
    """Train a network on samples with known concepts.

    The loss is the mean over samples and known concepts of the binary cross-entropy, without class weights: with them, P(yes)
    would no longer be a probability. Weights, order and symmetries depend on ``seed`` alone.
    """
    assert data.truth is not None
    concepts, device = data.truth.shape[1], resources.torch_device()
    settings = optimizer.model_copy(update={"select": "last", "reweight": "none"})
    if model.trained == "head":
        batches, inputs = _feature_batches(data, rows, model, settings, seed, resources)
        network = build_model(model, seed, outputs=concepts)
    else:
        source = ImageSource(data, device, workers=resources.readers or 0)
        batches = ConceptBatches(source, rows, rows[:0], settings.batch_size, seed)
        network = nn.Sequential(_Scaled(*_scale(model, data, rows)), build_model(model, seed, outputs=concepts))
        check_outputs(network, model.name, torch.zeros(2, 3, data.size, data.size), OTHER_SIZE, concepts)
        inputs = _pixels(device)
    set_arithmetic(settings.precision, device)
    posterior = PointPosterior(network.to(device), MultiLabel(concepts))
    run = TrainingRun(optimizer=settings, seed=seed)
    return ConceptNetwork(train(posterior, batches, run, checkpoint).model.eval(), inputs)


def untrained_network(model: ModelConfig, seed: int, data: Prepared, resources: Resources) -> ConceptNetwork:
    """Return a network as a user's function makes it, trained elsewhere; it reads channels in [0, 1]."""
    assert data.truth is not None
    if not model.own:
        raise InputError(
            f"'{model.name}' has no outputs for the concepts before it is trained",
            hint="--trained nothing is for your own function package.module:function.",
        )
    concepts, device = data.truth.shape[1], resources.torch_device()
    network = build_model(model, seed, outputs=concepts)
    check_outputs(network, model.name, torch.zeros(2, 3, data.size, data.size), OTHER_SIZE, concepts)
    set_arithmetic("float32", device)
    return ConceptNetwork(network.to(device).eval(), _pixels(device))


def _pixels(device: torch.device) -> Callable[[NDArray[np.uint8]], Tensor]:
    """Return what makes channels in [0, 1] of images (B, H, W, 3)."""
    return lambda images: _tensor(torch.from_numpy(np.ascontiguousarray(images)).to(device))


def _feature_batches(
    data: Prepared, rows: Rows, model: ModelConfig, optimizer: Optimizer, seed: int, resources: Resources
) -> tuple[Batches, Callable[[NDArray[np.uint8]], Tensor]]:
    """Return batches of standardised features, and the same features of any images."""
    device = resources.torch_device()
    features = trunk_features(model, data, device, resources.progress)
    mean, std = feature_scale(features[rows])
    on_device = torch.from_numpy((features[rows] - mean) / std).to(device)
    labels = torch.from_numpy(data.label[rows]).to(device)
    every = np.arange(len(rows))
    batches = Batches(ArraySource(on_device, labels), every, every[:0], optimizer.batch_size, seed)
    extract = Extractor(model, device)
    return batches, lambda images: torch.from_numpy((extract(images) - mean) / std).to(device)


class _Scaled(nn.Module):
    """Channels in [0, 1] minus a mean, divided by a std."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


def _scale(model: ModelConfig, data: Prepared, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return mean and std (1, 3, 1, 1) of the channels: those of the weights, or those of the training samples."""
    standardised = model.inputs == "standardised"
    scale = channel_statistics(data, rows) if standardised else SCALES.get(model.inputs, ((0.0,) * 3, (1.0,) * 3))
    mean, std = (torch.tensor(v, dtype=torch.float32).reshape(1, 3, 1, 1) for v in scale)
    return mean, std


def _tensor(images: Tensor) -> Tensor:
    """(B, H, W, 3) uint8 -> (B, 3, H, W) in [0, 1], channels last in memory."""
    return images.permute(0, 3, 1, 2).to(torch.float32).div_(255)


def _quarter_turn(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn each image (B, 3, H, H) by a quarter with probability 1/2."""
    chosen = torch.rand(len(images), generator=generator, device=images.device) < 0.5
    return torch.where(chosen[:, None, None, None], images.transpose(2, 3), images)
