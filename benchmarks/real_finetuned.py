"""Every method on IDRiD fine-tuned as the preset `real/finetuned` does it, beside the heads on the frozen trunk of `real.py`.

    python benchmarks/real.py --source ~/idrid --out results-real               # the images, and the heads
    python benchmarks/real_finetuned.py --out results-real                      # continues where it was stopped
    python benchmarks/real_findings.py --out results-real                       # scores what is there

`real/finetuned` trains the last convolution of EfficientNet-Lite0 and the head. What that convolution reads never changes, so it is
computed once, for the 516 images as they are and under nine kinds of damage at strength 3; each training then takes seconds
instead of minutes. The divisions of the patients are those of `real.py`: 5-fold cross-validation, all methods for one seed of a
division after the other (`tta`: `real_views.py`). Then the trained posteriors predict the 103 official test images under the
other strengths.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from real import (
    EVERYWHERE,
    FOLDS,
    METHODS,
    TUNED,
    damaged_parts,
    division_of,
    entropy,
    predict_held_out,
)
from torch import Tensor, nn

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import atomic_write
from retinabench.data.dataset import Rows, join
from retinabench.data.loader import ArraySource, Augment, Batches, unchanged
from retinabench.data.preprocessing.corruption import KINDS, Corruption, corrupt
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import POSTERIOR, Resources, Training, execute_run
from retinabench.experiments.run import FILE, ImageRuns, divided, predict
from retinabench.methods.registry import METHODS as METHOD_CLASSES
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.posterior import Posterior
from retinabench.models.build import build_model
from retinabench.models.networks.efficientnet_lite import EfficientNetLite
from retinabench.models.settings import SCALES
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

PRESET = "real/finetuned"
SAMPLES = {
    64: 8,
    60: 12,
    20: 8,
}  # of the posterior: a sample costs the last convolution of ten images for each test image
UNTUNED = {label.removeprefix("tuned ") for label in TUNED}
FINETUNED = {label: words for label, words in METHODS.items() if label not in UNTUNED} | {
    "LoRA ensemble": ["method=lora_ensemble"]
}


class Tail(nn.Module):
    """The last convolution of an EfficientNet-Lite, its norm, the pooling and the head: (B, D, H, W) -> logits (B, 1)."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        self.conv_head, self.bn2, self.act2 = network.conv_head, network.bn2, network.act2
        self.classifier = network.classifier

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of what the last convolution reads."""
        x = self.act2(self.bn2(self.conv_head(x)))
        logits: Tensor = self.classifier(torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1))
        return logits


@dataclass(frozen=True, eq=False)
class Maps:
    """Outputs of the frozen stages as the source of batches: unlike features, they have layers behind them that adapters can change."""

    arrays: ArraySource

    @property
    def device(self) -> torch.device:
        """The device of the outputs."""
        return self.arrays.device

    @property
    def targets(self) -> NDArray[Any]:
        """(N,) targets."""
        return self.arrays.targets

    def load(
        self, chunks: Sequence[Rows], stored_view: Augment = unchanged
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield outputs (B, D, H, W) and targets (B,) of each chunk of rows."""
        return self.arrays.load(chunks, stored_view)


@dataclass(frozen=True, kw_only=True)
class TailRuns(ImageRuns):
    """Runs that read `inputs`, the outputs of the frozen stages, in place of images."""

    inputs: Tensor

    def training(self, run: Run, resources: Resources) -> Training[Predictions]:
        """Return the trainable part of the network, and batches of what it reads."""
        task, network = tested(divided(self.task, run)), build_model(run.model, run.seed)
        assert isinstance(network, EfficientNetLite)
        source = Maps(ArraySource(self.inputs, torch.from_numpy(task.targets.astype(np.float32))))
        splits, size = task.splits, run.optimizer.batch_size
        batches = Batches(source, splits["train"], splits["validation"], size, run.seed)
        return Training(
            Tail(network), batches, lambda posterior: predict(run, task, posterior, batches), "Training"
        )


def tested(task: Task) -> Task:
    """Return the task without the damaged copies of the validation images, which nothing needs."""
    return replace(task, splits={k: rows for k, rows in task.splits.items() if k != "shifted_validation"})


def with_damage(task: Task) -> Task:
    """Return the task with its images a second to tenth time as shifted ones: under each kind of damage."""
    records, shifted = task.records, np.full(len(task), "shifted")
    damaged = [
        replace(
            records,
            image_id=np.array([f"{one}@{kind}" for one in records.image_id.tolist()]),
            domain=shifted,
        )
        for kind in KINDS
    ]
    data = replace(task.data, records=join([records, *damaged]))
    rows = np.arange(len(records), len(data.records))
    return replace(task, data=data, splits={**task.splits, "shifted_test": rows})


def damaged_images(
    task: Task, rows: NDArray[np.intp], kind: str, strength: int = EVERYWHERE
) -> NDArray[np.uint8]:
    """Return the images of some rows under a kind of damage at a strength; the empty kind is none."""
    images = task.data.images(rows)
    if not kind:
        return images
    damage, ids = Corruption(kind, strength), task.image_id[rows].tolist()
    return np.stack([corrupt(one, damage, i) for one, i in zip(images, ids, strict=True)])


class FrozenStages:
    """Computes what the last convolution of the pretrained network reads; each part is kept in a file of `out`."""

    def __init__(self, task: Task, out: Path) -> None:
        run = load_run(PRESET, [], data=str(task.data.folder), task="in_domain", seed=0)
        network = build_model(run.model, 0)
        assert isinstance(network, EfficientNetLite)
        self.task, self.out, self.network, self.read = task, out, network.eval(), list[Tensor]()
        network.conv_head.register_forward_pre_hook(lambda _, arguments: self.read.append(arguments[0]))
        self.scale = tuple(
            torch.tensor(values).reshape(1, 3, 1, 1) for values in SCALES[run.model.inputs]
        )  # mean and std

    def part(self, name: str, rows: NDArray[np.intp], kind: str, strength: int = EVERYWHERE) -> Tensor:
        """Return the outputs (M, 320, H, W) for images of some rows under a kind of damage."""
        file = self.out / f"frozen-{name}.npy"
        if not file.is_file():
            began = time.perf_counter()
            mean, std = self.scale
            for start in range(0, len(rows), 32):
                images = damaged_images(self.task, rows[start : start + 32], kind, strength)
                pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
                with torch.inference_mode():
                    self.network(pixels.div_(255).sub_(mean).div_(std))
            with atomic_write(file) as sink:
                np.save(sink, torch.cat(self.read).contiguous().numpy(), allow_pickle=False)
            self.read.clear()
            print(f"{file.name}: {time.perf_counter() - began:.0f} s", flush=True)
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))


def frozen_outputs(task: Task, stages: FrozenStages) -> Tensor:
    """Return what the last convolution reads (N, 320, H, W): the images of the task, then all of them by kind of damage."""
    test = task.records.split == "test"
    parts = {"test": np.flatnonzero(test), "train": np.flatnonzero(~test)}
    table: Tensor | None = None
    for number, kind in enumerate(("", *KINDS)):
        for part, rows in parts.items():
            found = stages.part(f"{kind or 'undamaged'}-{part}", rows, kind)
            if table is None:
                table = found.new_empty((len(task) * (1 + len(KINDS)), *found.shape[1:]))
            table[torch.from_numpy(rows + number * len(task))] = found
    assert table is not None
    return table


def columns(found: Predictions, task: Task) -> dict[str, NDArray[np.float64]]:
    """Return mean, expected entropy and own uncertainty of a run in the order of `real.Damaged`, NaN where it did not predict."""
    records = task.records
    place = {one: row for row, one in enumerate(found.image_id.tolist())}
    cells, rows = [np.full(len(records), "")], [np.arange(len(records))]
    for damage, _, some in damaged_parts(records.split):
        cells.append(np.full(len(some), damage.kind if damage.strength == EVERYWHERE else "?"))
        rows.append(some)
    row, kinds = np.concatenate(rows), np.concatenate(cells).tolist()
    ids = [
        f"{one}@{kind}" if kind else one
        for one, kind in zip(records.image_id[row].tolist(), kinds, strict=True)
    ]
    mine = np.array([place.get(one, -1) for one in ids])
    aleatoric = entropy(found.probs).mean(axis=1)
    own = found.uncertainty if found.uncertainty is not None else np.full(len(found), np.nan)
    return {
        name: np.where(mine >= 0, values[mine], np.nan)
        for name, values in (("mean", found.prob), ("aleatoric", aleatoric), ("own", own))
    }


def file_of(out: Path, label: str, number: int) -> Path:
    """Return the file of the predictions of a cross-validation."""
    return out / f"{label.replace(' ', '-')}-{number}.npz"


def compute(
    runs: ImageRuns, plain: Task, out: Path, order: Iterable[tuple[str, int, Run]], device: str = "cpu"
) -> None:
    """Cross-validate every method of an order and keep its predictions in `out`, each in one file."""
    for label, number, run in order:
        file = file_of(out, label, number)
        if file.is_file():
            continue
        began = time.perf_counter()
        try:
            found = read_predictions(execute_run(runs, run, out / "runs", Resources(device)) / FILE)
        except (InputError, WorkError) as error:
            print(f"{label} {number}: {error}", flush=True)
            continue
        with atomic_write(file) as sink:
            np.savez(sink, **columns(found, plain))
        print(f"{label} {number}: {time.perf_counter() - began:.0f} s", flush=True)


@dataclass(frozen=True, eq=False)
class OtherStrengths:
    """The test images under all strengths but `EVERYWHERE`: their positions in the columns, rows of the task, and frozen outputs."""

    at: NDArray[np.intp]
    rows: NDArray[np.intp]
    parts: Sequence[Tensor]

    def inputs(self, positions: NDArray[np.intp]) -> Tensor:
        """Return the frozen outputs at some of the positions, which grow."""
        each = len(self.parts[0])
        return torch.cat(
            [
                part[torch.from_numpy(positions[positions // each == k] % each)]
                for k, part in enumerate(self.parts)
            ]
        )


def other_strengths(task: Task, stages: FrozenStages) -> OtherStrengths:
    """Return the test images under the other strengths, in the order of `real.Damaged`."""
    start = len(task.records)
    at, found, parts = [], [], []
    for damage, _, rows in damaged_parts(task.records.split):
        if damage.strength != EVERYWHERE:
            at.append(np.arange(start, start + len(rows)))
            found.append(rows)
            name = f"{damage.kind}-{damage.strength}-test"
            parts.append(stages.part(name, rows, damage.kind, damage.strength))
        start += len(rows)
    return OtherStrengths(np.concatenate(at), np.concatenate(found), parts)


def tail_posterior(runs: TailRuns, folder: Path, run: Run) -> Posterior:
    """Return the posterior of a finished run over the trainable part of the network."""
    network = build_model(run.model, run.seed)
    assert isinstance(network, EfficientNetLite)
    posterior: Posterior = METHOD_CLASSES[run.method.name].build(Tail(network), run, runs.likelihood)
    posterior.restore(load_tensors(folder / POSTERIOR))
    return posterior


def add_strengths(runs: TailRuns, plain: Task, others: OtherStrengths, file: Path, run: Run) -> bool:
    """Predict the other strengths by a finished cross-validation and add them to its file; return whether they were missing."""
    if not file.is_file():
        return False
    found = dict(np.load(file, allow_pickle=False))
    if not np.isnan(found["mean"][others.at]).any():
        return False

    added = predict_held_out(
        run, plain, others.rows, lambda _, rows: others.inputs(rows),
        lambda one: file.parent / "runs" / runs.folder_name(one),
        lambda folder, one: tail_posterior(runs, folder, one), batch=64,
    )  # fmt: skip
    for name, values in added.items():
        found[name][others.at] = values
    with atomic_write(file) as sink:
        np.savez(sink, **found)
    return True


def cross_validation(number: int) -> list[str]:
    """Return the settings of the cross-validation of a number."""
    return [f"cross_validation.folds={FOLDS}", f"cross_validation.repeat={division_of(number)}"]


def finetuned_runs(data: Path, runs: int) -> Iterable[tuple[str, int, Run]]:
    """Yield the cross-validations: all methods for one seed of a division, then the next."""
    for number in range(runs):
        for label, words in FINETUNED.items():
            for many, few in SAMPLES.items():
                words = [f"method.samples={few}" if one == f"method.samples={many}" else one for one in words]
            words = [*words, *cross_validation(number)]
            yield label, number, load_run(PRESET, words, data=str(data), task="in_domain", seed=number)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results-real"), help="that of real.py")
    parser.add_argument("--runs", type=int, default=5, help="cross-validations, of the divisions in turn")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = options.out / "finetuned"
    plain = load_task(str(options.out / "data"), "in_domain")
    out.mkdir(exist_ok=True)
    stages = FrozenStages(plain, out)
    runs = TailRuns(with_damage(plain), inputs=frozen_outputs(plain, stages))
    order = list(finetuned_runs(options.out / "data", options.runs))
    compute(runs, plain, out, order)
    others = other_strengths(plain, stages)
    for label, number, run in order:
        began = time.perf_counter()
        if add_strengths(runs, plain, others, file_of(out, label, number), run):
            print(f"{label} {number}, other strengths: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
