"""From images with known lesions to answers: train a network on some images and let it answer about the others.

The folder holds
- `answers.csv`: image_id and P(yes) per concept, for the images (or regions) asked about;
- `truth.csv`: the same rows with 0 or 1 per concept;
- `training.csv`: the truth of the training images;
- `network.json`: the settings, and per concept the AUROC on the images asked about;
- `training/`: the state of an unfinished training, from which the same command continues.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks import lesion_images
from retinabench.concepts.banks.lesion_images import Samples
from retinabench.concepts.examine import ExamineOptions, examine_files
from retinabench.concepts.examinees.network import answer, train_network
from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import QUIET, Progress
from retinabench.core.untrusted.text import csv_text
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import LesionImages
from retinabench.data.datasets import idrid_lesions
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.metrics.classification import auroc
from retinabench.models.settings import ModelConfig

SOURCES = ("synthetic", "idrid")
WIDTH = 16


def known_lesions(name: str, source: Path | None, images: int | None, seed: int) -> LesionImages:
    """Return the images of a data set.

    Args:
        name: ``idrid``, read from ``source``, or ``synthetic``.
        source: Folder of the data set as downloaded; None for ``synthetic``.
        images: Number of synthetic images; None for 400.
        seed: Seed of the synthetic images.

    Returns:
        The collection.

    Raises:
        InputError: The name is unknown, or an option does not belong to it.
    """
    if name not in SOURCES:
        raise InputError(f"no lesions are known of '{name}'", hint=nearest(name, SOURCES))
    if name == "synthetic":
        if source is not None:
            raise InputError("synthetic retinas are rendered, not read", hint="Leave --source out.")
        return lesion_images.drawn(400 if images is None else images, seed=seed)
    if images is not None:
        raise InputError("--images is for synthetic data only", hint="Leave it out.")
    if source is None:
        raise InputError(f"{name} is read from a folder", hint="Name it with --source DIR.")
    return idrid_lesions.read(source)


@dataclass(frozen=True)
class LesionOptions:
    """Settings of a network that names lesions.

    Args:
        size: Side of each sample that the network sees, in pixels.
        grid: 1 asks about whole images; above 1, about each of the grid * grid regions of an image, which are cut from the
            image at ``grid`` times that size.
        epochs: Epochs of the training.
        seed: Seed of split, weights, order and symmetries.
    """

    size: int
    grid: int = 1
    epochs: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 16 or self.size * self.grid > 2048:
            raise InputError(
                f"images of {self.size} pixels on a grid of {self.grid} cannot be made",
                hint="--size is at least 16, and --size times --grid at most 2048.",
            )


def examine_lesions(
    name: str,
    out: Path,
    source: Path | None = None,
    *,
    images: int | None = None,
    size: int | None = None,
    grid: int = 1,
    epochs: int = 40,
    goals: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """Train a network, let it answer, and ask every question.

    Args:
        name: ``synthetic`` or ``idrid``.
        out: Folder of all files and the page.
        source: Folder of the data set as downloaded; None for ``synthetic``.
        images: Number of synthetic images; None for 400.
        size: Side of each sample, in pixels; None for 64 (synthetic) or 256 divided by the grid.
        grid: Regions per side of an image.
        epochs: Epochs of the training.
        goals: Goals such as ``sensitivity=0.85``, by which the page judges every concept.
        seed: Seed of everything random.
        progress: Where progress is shown.

    Returns:
        The JSON content of the examination.
    """
    known = known_lesions(name, source, images, seed)
    options = LesionOptions(size or (64 if name == "synthetic" else 256 // grid), grid, epochs, seed)
    train_and_answer(known, out, options, progress=progress)
    # An earlier transcript holds the answers of an earlier network.
    (out / "transcript.jsonl").unlink(missing_ok=True)
    return examine_files(
        out / "answers.csv", out / "truth.csv", out, ExamineOptions(seed=seed, goals=goals), progress=progress
    )


def train_and_answer(
    images: LesionImages, out: Path, options: LesionOptions, *, progress: Progress = QUIET
) -> dict[str, Any]:
    """Split the images, train, answer, and write the folder described above; a killed training continues.

    Args:
        images: The images.
        out: The folder.
        options: Settings of network and training.
        progress: Where progress is shown.

    Returns:
        The content of `network.json`.
    """
    size, grid, seed = options.size, options.grid, options.seed
    trained, asked_about = lesion_images.split(images, seed)
    with progress.track("Images", len(images), unit="images") as advance:
        training = lesion_images.gather(images, trained, size=size, grid=grid, advance=advance)
        test = lesion_images.gather(images, asked_about, size=size, grid=grid, advance=advance)
    optimizer = Optimizer(name="adam", lr=0.002, momentum=0.9, epochs=options.epochs, batch_size=16 * grid)
    # The published stem discards three quarters of the pixels, too many for small images.
    model = ModelConfig(width=WIDTH, stem="small" if size < 128 else "standard")
    settings = {
        "size": size,
        "grid": grid,
        "seed": seed,
        "model": model.model_dump(),
        "optimizer": optimizer.model_dump(),
    }
    workspace = Workspace(out / "training", "training of a lesion network")
    with workspace.lock():
        workspace.begin(
            {**settings, "images": [str(name) for name in training.sample_id], "version": __version__}
        )
        checkpoint = Checkpoint(workspace.folder, progress, "Training the network")
        network = train_network(
            training.images,
            training.truth,
            model=model,
            optimizer=optimizer,
            seed=seed,
            checkpoint=checkpoint,
        )
    probability = answer(network, test.images)
    found = {
        "concepts": _learnt(images.concepts, training, test, probability),
        "trained_on": len(training.sample_id),
        "questioned_on": len(test.sample_id),
        **settings,
        "version": __version__,
    }
    write_bytes(
        out / "training.csv", table(training.sample_id, images.concepts, training.truth), checked=True
    )
    write_bytes(out / "truth.csv", table(test.sample_id, images.concepts, test.truth), checked=True)
    write_bytes(out / "answers.csv", table(test.sample_id, images.concepts, probability), checked=True)
    write_json(out / "network.json", found, checked=True)
    shutil.rmtree(workspace.folder, ignore_errors=True)
    return found


def table(
    sample_id: NDArray[np.str_], concepts: tuple[str, ...], values: NDArray[np.bool_] | NDArray[np.float64]
) -> bytes:
    """Return a CSV with image_id and one column per concept.

    Args:
        sample_id: (M,) text.
        concepts: C names.
        values: (M, C), truth (written as 0 or 1) or probabilities (with all their digits).

    Returns:
        The content of the file.
    """
    numbers = values.astype(int) if values.dtype == np.bool_ else values
    rows = [[name, *row.tolist()] for name, row in zip(sample_id, numbers, strict=True)]
    return csv_text([["image_id", *concepts], *rows]).encode()


def _learnt(
    concepts: tuple[str, ...], training: Samples, test: Samples, probability: NDArray[np.float64]
) -> dict[str, dict[str, float | int | None]]:
    """Per concept: positives trained and questioned on, and the AUROC, None where one class is missing."""
    found: dict[str, dict[str, float | int | None]] = {}
    for column, concept in enumerate(concepts):
        label = test.truth[:, column]
        mixed = 0 < label.sum() < len(label)
        found[concept] = {
            "trained_positives": int(training.truth[:, column].sum()),
            "questioned_positives": int(label.sum()),
            "auroc": float(auroc(label.astype(np.int8), probability[:, column])) if mixed else None,
        }
    return found
