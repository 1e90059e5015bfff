"""From images with known lesions to an examinee's answers: train a network on some, let it answer about the others.

A folder of answers holds
- `answers.csv`: image_id, and per concept P(yes), of the images (or regions) that are questioned;
- `truth.csv`: the same rows, and per concept 0 or 1;
- `training.csv`: the truth of those that the network was trained on;
- `network.json`: what it is made from, and per concept the AUROC on the questioned ones.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks import idrid_lesions, lesion_images
from retinabench.concepts.banks.lesion_images import LesionImages, Samples
from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import QUIET, Progress
from retinabench.core.version import __version__
from retinabench.methods.settings import Optimizer
from retinabench.metrics.classification import auroc
from retinabench.models.settings import ModelConfig

SOURCES = ("synthetic", "idrid")
WIDTH = 16


def known_lesions(name: str, source: Path | None, images: int | None, seed: int) -> LesionImages:
    """Return the images of a data set: `idrid` is read from `source`, of `synthetic` the first `images` are drawn."""
    if name not in SOURCES:
        raise InputError(f"no lesions are known of '{name}'", hint=nearest(name, SOURCES))
    if name == "synthetic":
        if source is not None:
            raise InputError("synthetic retinas are drawn, not read", hint="Leave --source out.")
        return lesion_images.drawn(400 if images is None else images, seed=seed)
    if images is not None:
        raise InputError("--images is for synthetic data only", hint="Leave it out.")
    if source is None:
        raise InputError(f"{name} is read from a folder", hint="Name it with --source DIR.")
    return idrid_lesions.read(source)


def examine_network(
    name: str,
    out: Path,
    source: Path | None = None,
    *,
    images: int | None = None,
    size: int | None = None,
    grid: int = 1,
    epochs: int = 40,
    seed: int = 0,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """Train, answer, and ask every question; return the examination. All files and the page go into `out`."""
    from retinabench.concepts.command import examine_files

    known = known_lesions(name, source, images, seed)
    size = size or (64 if name == "synthetic" else 256 // grid)
    train_and_answer(known, out, size=size, grid=grid, epochs=epochs, seed=seed, progress=progress)
    # A transcript holds the answers of the network before; this one answers anew.
    (out / "transcript.jsonl").unlink(missing_ok=True)
    return examine_files(
        out / "answers.csv",
        out / "truth.csv",
        out,
        concepts=None,
        strategy="precision",
        questions=None,
        tolerance=None,
        patience=None,
        claims=(),
        confidence=0.95,
        reading="std",
        rules="corrected",
        kernel="published",
        repetitions=10,
        seed=seed,
        progress=progress,
    )


def train_and_answer(
    images: LesionImages,
    out: Path,
    *,
    size: int,
    grid: int = 1,
    epochs: int = 40,
    seed: int = 0,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """Split, train, answer; write the folder of answers into `out` and return the content of `network.json`.

    size: side of each picture that the network sees. grid: 1 asks about whole images; above 1, about each of the
    grid * grid regions of an image, which are cut from the picture at `grid` times that size.
    """
    if size < 16 or size * grid > 2048:
        raise InputError(
            f"pictures of {size} pixels on a grid of {grid} cannot be made",
            hint="--size is at least 16, and --size times --grid at most 2048.",
        )
    from retinabench.concepts.examinees.network import answer, train_network

    trained, questioned = lesion_images.split(images, seed)
    with progress.track("Pictures", len(images), unit="images") as advance:
        training = lesion_images.gather(images, trained, size=size, grid=grid, advance=advance)
        test = lesion_images.gather(images, questioned, size=size, grid=grid, advance=advance)
    optimizer = Optimizer(name="adam", lr=0.002, momentum=0.9, epochs=epochs, batch_size=16 * grid)
    # The published stem throws away three quarters of the pixels, which small pictures cannot spare.
    model = ModelConfig(width=WIDTH, stem="small" if size < 128 else "standard")
    network = train_network(
        training.pictures, training.truth, model=model, optimizer=optimizer, seed=seed, progress=progress
    )
    probability = answer(network, test.pictures)
    found = {
        "concepts": _learnt(images.concepts, training, test, probability),
        "trained_on": len(training.sample_id),
        "questioned_on": len(test.sample_id),
        "size": size,
        "grid": grid,
        "seed": seed,
        "model": model.model_dump(),
        "optimizer": optimizer.model_dump(),
        "version": __version__,
    }
    write_bytes(out / "training.csv", table(training.sample_id, images.concepts, training.truth))
    write_bytes(out / "truth.csv", table(test.sample_id, images.concepts, test.truth))
    write_bytes(out / "answers.csv", table(test.sample_id, images.concepts, probability))
    write_json(out / "network.json", found)
    return found


def table(
    sample_id: NDArray[np.str_], concepts: tuple[str, ...], values: NDArray[np.bool_] | NDArray[np.float64]
) -> bytes:
    """Return a CSV of image_id and one column per concept: 0 or 1, or probabilities with all their digits."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["image_id", *concepts])
    numbers = values.astype(int) if values.dtype == np.bool_ else values
    writer.writerows([name, *row.tolist()] for name, row in zip(sample_id, numbers, strict=True))
    return sink.getvalue().encode()


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
