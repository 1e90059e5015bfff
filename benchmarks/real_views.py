"""Test-time augmentation of the fine-tuned networks of MAP on IDRiD: what `tta` does, with networks that `real_finetuned.py` trained.

    python benchmarks/real_finetuned.py --out results-real      # trains the networks
    python benchmarks/real_views.py --out results-real          # continues where it was stopped
    python benchmarks/real_findings.py --out results-real       # scores what is there

Seven mirrored and turned views are predicted by the networks that did not see the patient: of every image undamaged and at strength
3, of the official test images under the other strengths. The image as it is is the eighth view.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from real import EVERYWHERE, TTA, cell_of, damaged_parts, entropy, predict_held_out
from real_finetuned import (
    FrozenStages,
    TailRuns,
    damaged_images,
    file_of,
    finetuned_runs,
    tail_posterior,
    with_damage,
)
from torch import Tensor

from retinabench.core.files import atomic_write
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.methods.tta import DIHEDRAL, make_views


@dataclass(frozen=True, eq=False)
class Cell:
    """Images of some rows under a kind of damage, "" for none."""

    name: str
    rows: NDArray[np.intp]
    kind: str
    strength: int


def cells(task: Task) -> Iterator[Cell]:
    """Yield the cells in the order of `real.Damaged`."""
    yield Cell("undamaged-all", np.arange(len(task.records)), "", EVERYWHERE)
    for damage, split, rows in damaged_parts(task.records.split):
        yield Cell(f"{cell_of(damage.kind, damage.strength)}-{split}", rows, damage.kind, damage.strength)


def frozen_views(stages: FrozenStages, cell: Cell) -> Tensor:
    """Return what the last convolution reads of the views of a cell's images (V, M, 320, H, W)."""
    views = make_views("dihedral", DIHEDRAL, torch.Generator())[1:]
    parts: list[list[Tensor]] = [[] for _ in views]
    mean, std = stages.scale
    for start in range(0, len(cell.rows), 32):
        images = damaged_images(stages.task, cell.rows[start : start + 32], cell.kind, cell.strength)
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        for part, view in zip(parts, views, strict=True):
            with torch.inference_mode():
                stages.network(view(pixels).float().div_(255).sub_(mean).div_(std))
            part.append(stages.read.pop())
    return torch.stack([torch.cat(part) for part in parts])


def predicted_views(
    runs: TailRuns, stages: FrozenStages, cell: Cell, found: Sequence[Run], folder: Path
) -> NDArray[np.float64]:
    """Return P(referable) of the views of a cell's images by each run (R, V, M)."""
    read = frozen_views(stages, cell)
    return np.stack(
        [
            [
                predict_held_out(
                    run,
                    stages.task,
                    cell.rows,
                    lambda _, places, view=view: view[torch.from_numpy(places)],
                    lambda one: folder / "runs" / runs.folder_name(one),
                    lambda path, one: tail_posterior(runs, path, one),
                    batch=64,
                )["mean"]
                for view in read
            ]
            for run in found
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results-real"), help="that of real_finetuned.py")
    parser.add_argument("--runs", type=int, default=5, help="cross-validations, as in real_finetuned.py")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = options.out / "finetuned"
    task = load_task(str(options.out / "data"), "in_domain")
    stages, runs = FrozenStages(task, out), TailRuns(with_damage(task), inputs=torch.empty(0))
    order = finetuned_runs(options.out / "data", options.runs)
    trained = {
        number: run
        for label, number, run in order
        if label == "MAP" and file_of(out, label, number).is_file()
    }
    columns: dict[int, list[NDArray[np.float64]]] = {number: [] for number in trained}
    (out / "views").mkdir(exist_ok=True)
    for cell in cells(task):
        file = out / "views" / f"{cell.name}.npy"
        if not file.is_file():
            began = time.perf_counter()
            probs = predicted_views(runs, stages, cell, list(trained.values()), out)
            with atomic_write(file) as sink:
                np.save(sink, probs, allow_pickle=False)
            print(f"{file.name}: {time.perf_counter() - began:.0f} s", flush=True)
        for number, probs in zip(trained, np.load(file, allow_pickle=False), strict=True):
            columns[number].append(probs)
    for number, parts in columns.items():
        as_it_is = np.load(file_of(out, "MAP", number), allow_pickle=False)["mean"]
        views = np.concatenate([as_it_is[None], np.concatenate(parts, axis=1)])
        with atomic_write(file_of(out, TTA, number)) as sink:
            np.savez(
                sink,
                mean=views.mean(axis=0),
                aleatoric=entropy(views).mean(axis=0),
                own=np.full(views.shape[1], np.nan),
            )


if __name__ == "__main__":
    main()
