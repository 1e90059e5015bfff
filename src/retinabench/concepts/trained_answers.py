"""From the images of a bank to answers: train a network on some images and let it answer about the others.

The folder holds
- `answers.csv`: image_id and P(yes) per concept, for the images (or regions) asked about;
- `truth.csv`: the same rows with 0, 1 or nothing (unknown) per concept, and patient_id where a patient has several;
- `training.csv`: the truth of the training images;
- `network.json`: the settings, and per concept the AUROC on the images asked about;
- `samples/`: the images, or regions, as the network reads them, and the features of a pretrained trunk;
- `training/`: the state of an unfinished training, from which the same command continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from retinabench.concepts.banks import masks
from retinabench.concepts.banks.bank import prepare_samples, sample_rows
from retinabench.concepts.banks.definition import BankDefinition
from retinabench.concepts.banks.tables import PATIENT
from retinabench.concepts.examinees import SYNTHETIC
from retinabench.core.errors import InputError, csv_text
from retinabench.core.files import remove, write_bytes, write_json
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.settings import first_problem
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import ConceptImages, Rows
from retinabench.data.loader import Batches, ImageSource, channel_statistics, flip
from retinabench.data.prepared import Prepared
from retinabench.experiments.config import find
from retinabench.experiments.execution import Resources
from retinabench.experiments.features import Extractor, feature_source
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import MultiLabel
from retinabench.methods.training.loop import train
from retinabench.metrics.classification import auroc
from retinabench.models.build import build_model, build_trunk, check_size, set_arithmetic
from retinabench.models.foreign import check_outputs
from retinabench.models.settings import SCALES, TIMM, ModelConfig

PRETRAINED = {"name": "efficientnet_lite0", "weights": "imagenet", "pool": "mean_max", "trained": "head"}
AS_IT_IS = "nothing"
LEAST_REGION = 128  # pixels of a region, unless the images of a bank are smaller
PREDICT_AT_ONCE = 64
OTHER_SIZE = "Choose another --size."
CPU = Resources("cpu")


@dataclass(frozen=True, eq=False)
class ConceptNetwork:
    """A network that answers about samples; shapes: `network` (B, C). `read` returns what it reads of some rows."""

    network: nn.Module
    read: Callable[[Rows], Tensor]

    @torch.no_grad()
    def answer(self, rows: Rows) -> NDArray[np.float64]:
        """Return P(yes), (len(rows), C), for some samples, few of which are in memory at a time."""
        parts = np.split(rows, range(PREDICT_AT_ONCE, len(rows), PREDICT_AT_ONCE))
        return torch.cat([self.network(self.read(part)) for part in parts]).double().sigmoid().cpu().numpy()


class ConceptBatches(Batches):
    """Batches of images with labels (B, C), NaN where unknown, in eight symmetries.

    Images are mirrored and turned by quarters at random: with the two mirrors, all eight symmetries of the square. An epoch
    is cut into equal parts rather than full batches, since batch norm cannot work on a last batch of one image.
    """

    @cached_property
    def steps(self) -> int:
        return math.ceil(len(self.train) / self.batch_size)

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch: images (B, 3, H, W) and labels (B, C), float32."""
        order = self.train[numpy_generator(self.seed, "order", number).permutation(len(self.train))]
        noise = torch_generator(self.device, self.seed, "augment", number)

        def symmetric(images: Tensor) -> Tensor:
            images = flip(images, noise)
            turned = torch.rand(len(images), generator=noise, device=images.device) < 0.5
            return torch.where(turned[:, None, None, None], images.transpose(2, 3), images)

        for images, labels in self.source.load(np.array_split(order, self.steps), symmetric):
            own = np.array_split(np.arange(len(labels)), ranks)[rank] if ranks > 1 else slice(None)
            yield images[own], labels[own]


def default_optimizer(model: ModelConfig, concepts: int, batch: int, epochs: int | None = None) -> Optimizer:
    """Return the settings of a training: those of the presets `real/frozen` and `real/finetuned` for pretrained networks.

    The loss is a mean over C concepts. With C times the learning rate and the C-th part of the L2 factor, a linear head learns
    each concept as the preset learns its one label.
    """
    if model.weights is None:
        own: JsonObject = {"name": "adam", "lr": 0.002, "momentum": 0.9, "epochs": epochs or 40, "batch_size": batch}
        return Optimizer(**own, select="last", reweight="none")
    settings: JsonObject = find("real/frozen" if model.trained == "head" else "real/finetuned")[1]["optimizer"]
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
    network = build_model(model, seed, outputs=concepts)
    read: Callable[[Rows], Tensor]
    if model.trained == "head":
        source, mean, std = feature_source(model, data, rows, device, resources.progress)
        batches, extract = Batches(source, rows, rows[:0], settings.batch_size, seed), Extractor(model, device)

        def read_features(rows: Rows) -> Tensor:
            return torch.from_numpy((extract(data.images(rows)) - mean) / std).to(device)

        read = read_features
    else:
        scale: tuple[Sequence[float], Sequence[float]] | None = SCALES.get(model.inputs)
        if model.inputs == "standardised":
            over_rows = channel_statistics(data, rows)
            scale = over_rows[0].tolist(), over_rows[1].tolist()
        images = ImageSource(data, device, workers=resources.readers or 0, scale=scale)
        batches, read = ConceptBatches(images, rows, rows[:0], settings.batch_size, seed), _reader(images)
        check_outputs(network, model.name, torch.zeros(2, 3, data.size, data.size), OTHER_SIZE, concepts)
    set_arithmetic(settings.precision, device)
    posterior = PointPosterior(network.to(device), MultiLabel(concepts))
    run = TrainingRun(optimizer=settings, seed=seed)
    return ConceptNetwork(train(posterior, batches, run, checkpoint).model.eval(), read)


def untrained_network(model: ModelConfig, seed: int, data: Prepared, resources: Resources) -> ConceptNetwork:
    """Return a network as a user's function makes it, trained elsewhere; it reads channels in [0, 1]."""
    assert data.truth is not None
    concepts, device = data.truth.shape[1], resources.torch_device()
    network = build_model(model, seed, outputs=concepts)
    check_outputs(network, model.name, torch.zeros(2, 3, data.size, data.size), OTHER_SIZE, concepts)
    set_arithmetic("float32", device)
    return ConceptNetwork(network.to(device).eval(), _reader(ImageSource(data, device)))


def _reader(images: ImageSource) -> Callable[[Rows], Tensor]:
    return lambda rows: list(images.load([rows]))[0][0]  # noqa: RUF015


@dataclass(frozen=True)
class NetworkOptions:
    """Which network answers about the images of a bank, and what it sees."""

    examinee: str | None = None
    weights: str | None = None
    trained: str | None = None
    size: int | None = None
    grid: int = 1
    epochs: int | None = None
    images: int | None = None
    seed: int = 0
    resources: Resources = field(default_factory=Resources)

    @property
    def synthetic(self) -> bool:
        """Whether the examinee is one of `SYNTHETIC`, and no network."""
        return self.examinee in SYNTHETIC

    def side(self, definition: BankDefinition) -> int:
        size = self.size or max(definition.size // self.grid, min(LEAST_REGION, definition.size))
        if size < 16 or size * self.grid > 2048:
            hint = "--size is at least 16, and --size times --grid at most 2048."
            raise InputError(f"images of {size} pixels on a grid of {self.grid} cannot be made", hint=hint)
        return size

    def model(self, definition: BankDefinition, size: int) -> ModelConfig:
        if self.examinee is None:
            settings = {**(definition.network or PRETRAINED)}
            if size >= 128:  # the published stem discards three quarters of the pixels, too many for small images
                settings.pop("stem", None)
        else:
            lite, timm = self.examinee.startswith("efficientnet_lite"), self.examinee.startswith(TIMM)
            settings = {"name": self.examinee} | ({"pool": "mean_max"} if lite else {})
            if weights := self.weights or ("imagenet" if lite else "timm" if timm else None):
                settings |= {"weights": weights, "trained": "head"}
            elif size < 128 and self.examinee.startswith("resnet"):
                settings["stem"] = "small"
        if self.weights is not None:
            settings["weights"] = self.weights
        if self.trained not in (None, AS_IT_IS):
            assert self.trained is not None
            settings["trained"] = int(self.trained) if self.trained.isdigit() else self.trained
        try:
            model = ModelConfig.model_validate(settings)
        except ValidationError as error:
            raise first_problem(error, None, lambda path: list(ModelConfig.model_fields)) from None
        if self.trained == AS_IT_IS and not model.own:
            problem = f"'{model.name}' has no outputs for the concepts before it is trained"
            raise InputError(problem, hint="--trained nothing is for your own function package.module:function.")
        return model


def train_and_answer(
    images: ConceptImages,
    definition: BankDefinition,
    out: Path,
    options: NetworkOptions,
    size: int,
    source: Mapping[str, str],
) -> None:
    """Split the images, train, answer, and write the folder described above; a killed training continues."""
    grid, seed = options.grid, options.seed
    drawn = {"images": len(images), "seed": seed} if definition.synthetic else {}
    model = options.model(definition, size)
    check_size(model, size)
    # What cannot be built is refused before anything is written.
    build_trunk(model) if model.trained == "head" else build_model(model, seed)
    progress = options.resources.progress
    data = prepare_samples(images, out / "samples", size=size, grid=grid, source={**source, **drawn}, progress=progress)
    as_it_is = options.trained == AS_IT_IS
    trained, asked = ([], range(len(images))) if as_it_is else masks.split(images, seed, definition.held_out)
    rows, questions = (sample_rows(np.asarray(some, np.intp), grid) for some in (trained, asked))
    settings: JsonObject = {"size": size, "grid": grid, "seed": seed, "model": model.model_dump()}
    if as_it_is:
        network = untrained_network(model, seed, data, options.resources)
    else:
        settings["optimizer"] = default_optimizer(model, len(images.concepts), 16 * grid, options.epochs).model_dump()
        network = _trained(data, rows, model, out / "training", settings, options.resources)
    probability = network.answer(questions)
    learnt = _learnt(images.concepts, data, rows, questions, probability)
    counts = {"trained_on": len(rows), "questioned_on": len(questions)}
    found = {"concepts": learnt, **counts, **settings, "version": __version__}
    ids, patients, truth = data.records.image_id, data.records.patient_id, data.truth
    assert truth is not None
    for name, some in (("training.csv", rows), ("truth.csv", questions)):
        write_bytes(out / name, table(ids[some], images.concepts, truth[some], patients[some]), checked=True)
    write_bytes(out / "answers.csv", table(ids[questions], images.concepts, probability), checked=True)
    write_json(out / "network.json", found, checked=True)
    remove(out / "training")


def _trained(
    data: Prepared, rows: Rows, model: ModelConfig, folder: Path, settings: JsonObject, resources: Resources
) -> ConceptNetwork:
    workspace = Workspace(folder, "training of a network")
    with workspace.lock():
        workspace.begin({**settings, "images": data.fingerprint, "version": __version__})
        checkpoint = Checkpoint(folder, resources.progress, "Training the network")
        return train_network(
            data, rows, model=model, optimizer=Optimizer(**settings["optimizer"]), seed=settings["seed"],
            checkpoint=checkpoint, resources=resources,
        )  # fmt: skip


def write_truth(images: ConceptImages, rows: Rows, file: Path) -> None:
    patients = images.patient_id[rows]
    write_bytes(file, table(images.sample_id[rows], images.concepts, images.truth[rows], patients), checked=True)


def table(
    sample_id: NDArray[np.str_],
    concepts: tuple[str, ...],
    values: NDArray[np.int8] | NDArray[np.float64],
    patients: NDArray[np.str_] | None = None,
) -> bytes:
    """Return a CSV with image_id, patient_id where a patient has several samples, and one column per concept; `values` (M, C)."""
    named = [[name] for name in sample_id]
    if several := patients is not None and len(np.unique(patients)) < len(patients):
        named = [[*one, patient] for one, patient in zip(named, patients, strict=True)]
    rows = [
        [*one, *("" if value < 0 else value for value in row.tolist())] for one, row in zip(named, values, strict=True)
    ]
    return csv_text([["image_id", *([PATIENT] if several else []), *concepts], *rows]).encode()


def _learnt(
    concepts: tuple[str, ...], data: Prepared, rows: Rows, asked: Rows, probability: NDArray[np.float64]
) -> dict[str, dict[str, float | int | None]]:
    """Per concept: positives trained and questioned on, and the AUROC, None where one class is missing."""
    assert data.truth is not None
    found: dict[str, dict[str, float | int | None]] = {}
    for column, concept in enumerate(concepts):
        label = data.truth[asked, column]
        known = label >= 0
        mixed = 0 < (label == 1).sum() < known.sum()
        found[concept] = {
            "trained_positives": int((data.truth[rows, column] == 1).sum()),
            "questioned_positives": int((label == 1).sum()),
            "auroc": float(auroc(label[known], probability[known, column])) if mixed else None,
        }
    return found
