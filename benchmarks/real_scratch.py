"""Networks from scratch on IDRiD, for the comparison with the pretrained ones of `real.py` and `real_finetuned.py`.

    python benchmarks/real.py --source ~/idrid --out results-real               # the divisions, and the damaged images' layout
    python benchmarks/real_scratch.py --source ~/idrid --out results-real       # continues where it was stopped
    python benchmarks/real_findings.py --out results-real                       # scores what is there

The preset `real/small`: a ResNet-18 of width 16, random weights, 128 px, 60 epochs, images mirrored at random. MAP and MC dropout by
the same 5-fold cross-validations as the others, the damage of strength 3 on the images of 128 px. `real_findings.py` pools the seeds
of a division as the ensemble from scratch. A fold takes about 75 processor seconds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from real import METHODS, REPEATS
from real_finetuned import compute, cross_validation, damaged_images, tested, with_damage

from retinabench.core.files import atomic_write
from retinabench.data.loader import Batches, ImageSource
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.corruption import KINDS
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import Resources, Training
from retinabench.experiments.run import ImageRuns, divided, predict
from retinabench.models.build import build_model
from retinabench.predictions.table import Predictions

PRESET, SIZE, DEVICE = "real/small", 128, torch.device("cpu")
COMPARED = ("MAP", "MC dropout")


@dataclass(frozen=True, eq=False)
class InMemory:
    """What an `ImageSource` reads of a prepared folder: images (N, H, W, 3) and labels (N,)."""

    pixels: NDArray[np.uint8]
    label: NDArray[np.int8]

    def images(self, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Return the images of some rows."""
        return self.pixels[rows]


@dataclass(frozen=True, kw_only=True)
class ScratchRuns(ImageRuns):
    """Runs on images, their damaged copies among them, that are held in memory."""

    pixels: NDArray[np.uint8]

    def training(self, run: Run, resources: Resources) -> Training[Predictions]:
        """Return the network, and batches of images in memory."""
        task = tested(divided(self.task, run))
        splits, data = task.splits, InMemory(self.pixels, np.asarray(task.targets).astype(np.int8))
        source = ImageSource(data, DEVICE, splits["train"])  # type: ignore[arg-type]
        batches = Batches(
            source,
            splits["train"],
            splits["validation"],
            run.optimizer.batch_size,
            run.seed,
            run.optimizer.augment,
        )
        return Training(
            build_model(run.model, run.seed),
            batches,
            lambda posterior: predict(run, task, posterior, batches),
            "Training",
        )


def all_images(task: Task, file: Path) -> NDArray[np.uint8]:
    """Return the images of a task, then all of them by kind of damage; computed once and kept in a file."""
    if not file.is_file():
        rows = np.arange(len(task))
        with atomic_write(file) as sink:
            np.save(sink, np.concatenate([damaged_images(task, rows, kind) for kind in ("", *KINDS)]))
    return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))


def scratch_runs(data: Path, seeds: int) -> Iterable[tuple[str, int, Run]]:
    """Yield the cross-validations: of the first division all seeds of MAP, then those of MC dropout; then the next division."""
    for division, label in product(range(REPEATS), COMPARED):
        words = ["method.samples=16" if one == "method.samples=64" else one for one in METHODS[label]]
        for number in range(division, seeds * REPEATS, REPEATS):
            settings = [*words, *cross_validation(number)]
            yield label, number, load_run(PRESET, settings, data=str(data), task="in_domain", seed=number)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results-real"), help="that of real.py")
    parser.add_argument("--seeds", type=int, default=3, help="of each division")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = options.out / "scratch"
    prepare("idrid", out / "data", recipe=Recipe(SIZE), source=options.source, workers=1)
    task = load_task(str(out / "data"), "in_domain")
    runs = ScratchRuns(with_damage(task), pixels=all_images(task, out / "images.npy"))
    compute(runs, task, out, scratch_runs(out / "data", options.seeds))


if __name__ == "__main__":
    main()
