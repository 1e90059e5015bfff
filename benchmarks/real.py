"""The findings of docs/results.md on real images: every method on IDRiD with a pretrained trunk, under graded damage.

    python benchmarks/real.py heads --source ~/idrid --out results-real      # an hour of one core
    python benchmarks/real.py search --out results-real                      # settings of `TUNED`; after the first seed of heads
    python benchmarks/real.py finetuned --out results-real                   # two to six hours
    python benchmarks/real.py views --out results-real                       # their test-time augmentation: an hour
    python benchmarks/real.py scratch --source ~/idrid --out results-real    # 2 hours; 128 px
    python benchmarks/real_findings.py --out results-real                    # scores what is there, and makes the tables

`--source` is the data set as `retinabench prepare idrid` reads it. A stopped command continues where it was.

heads: the features of EfficientNet-Lite0 at 320 px (the preset `real/frozen`), undamaged and under nine kinds of damage at five
strengths (the official test images at all strengths, the others at strength 3); heads of every method on them by repeated,
patient-disjoint 5-fold cross-validation: two divisions of the patients, each with `--seeds` seeds, so that every image is
predicted by runs that did not see its patient; and the heads of MAP on eight views of each image (`tta`).

search: every point of a small grid is a 5-fold cross-validation of the 413 training images alone; the lowest NLL wins.

finetuned: the preset `real/finetuned` trains the last convolution and the head. What that convolution reads never changes, so it
is computed once, and each training takes seconds. The same divisions; then the other strengths of damage.

views: seven mirrored and turned views, predicted by the fine-tuned networks of MAP that did not see the patient.

scratch: the preset `real/small` (ResNet-18 of width 16, 128 px, 60 epochs); MAP and MC dropout, damage of strength 3.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import atomic_write
from retinabench.core.seeds import derive
from retinabench.data.dataset import Rows, join
from retinabench.data.loader import ArraySource, Augment, Batches, ImageSource, unchanged
from retinabench.data.prepare import prepare
from retinabench.data.prepared import Prepared, open_prepared
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS, Corruption, corrupt
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import POSTERIOR, Resources, Training, execute_run, member_runs
from retinabench.experiments.features import Extractor, feature_scale, trunk_features
from retinabench.experiments.run import FILE, ImageRuns, divided, execute, predict, run_folder
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.composed import best_temperature, scaled
from retinabench.methods.registry import METHODS as METHOD_CLASSES
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior
from retinabench.methods.tta import DIHEDRAL, make_views
from retinabench.metrics.classification import auroc, nll
from retinabench.models.build import build_model
from retinabench.models.networks.efficientnet_lite import EfficientNetLite
from retinabench.models.settings import SCALES, ModelConfig
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

SIZE, FOLDS, REPEATS, EVERYWHERE = 320, 5, 2, 3


TRUNK = ModelConfig(name="efficientnet_lite0", weights="imagenet", pool="mean_max", trained="head")


CPU = torch.device("cpu")


TTA = "test-time augmentation"  # of MAP


MANY = "method.samples=64"


PRIOR = "optimizer.l2_on=everything"


METHODS = {
    "MAP": ["method=map"],
    "tempered MAP": ["method=temperature"],
    "MC dropout": ["method=dropout", MANY],
    "MFVI": ["method=mfvi", MANY],
    "radial": ["method=radial", MANY],
    "rank-1": ["method=rank1", MANY],
    "FSVI": ["method=fsvi", MANY],
    "VBLL": ["method=vbll"],
    "Laplace (validation)": ["method=laplace", "method.prior_precision=validation", "method.samples=100"],
    "Laplace (evidence)": ["method=laplace", "method.prior_precision=evidence", "method.samples=100"],
    "SWAG": ["method=swag", MANY],
    "MultiSWAG": ["method=multiswag", "method.samples=60"],
    "IVON": ["method=ivon", MANY],
    "VOGN": ["method=vogn", MANY],
    "Gaussian VI": ["method=gaussian_vi", MANY],
    "SGLD": ["method=sgld", PRIOR],
    "SGHMC": ["method=sghmc", PRIOR],
    "cyclical SGHMC": ["method=csghmc", PRIOR],
    "anchored ensemble": ["method=ensemble", "method.member=anchored", "method.members=3", PRIOR],
    "sequential anchored": ["method=sequential_anchored", PRIOR],
    "SNGP": ["method=sngp"],
    "DDU": ["method=ddu"],
    "BatchEnsemble": ["method=batch_ensemble"],
    "head ensemble": ["method=head_ensemble"],
}


COLD = ["method.temperature=0.001", PRIOR]


TUNED = {  # by `search`, on the 413 training images
    "tuned SGLD": ["method=sgld", "method.samples=60", *COLD],
    "tuned SGHMC": ["method=sghmc", "method.samples=60", *COLD],
    "tuned cyclical SGHMC": ["method=csghmc", "method.samples=20", "method.temperature=0.01", PRIOR],
    "tuned anchored ensemble": [
        "method=ensemble", "method.member=anchored", "method.members=5", PRIOR, "optimizer.l2=0.5",
    ],
    "tuned sequential anchored": ["method=sequential_anchored", "method.samples=10", PRIOR, "optimizer.l2=1.5"],
    "tuned FSVI": ["method=fsvi", "method.samples=64", "optimizer.lr=0.005"],
}  # fmt: skip


METHODS |= TUNED


POOLED = ("MAP", "MC dropout", "MFVI", "rank-1", "VBLL", "IVON", "cyclical SGHMC")  # also as ensembles of their seeds


@dataclass(frozen=True, eq=False)
class Damaged:
    """Features of damaged images: `cell` (``""`` for none), `row` of the data set and features, all of one length."""

    cell: NDArray[np.str_]
    row: NDArray[np.intp]
    features: NDArray[np.float32]


def cell_of(kind: str, strength: int) -> str:
    """Return the name of a kind of damage at a strength."""
    return f"{kind}-{strength}"


def damaged_parts(split: NDArray[np.str_]) -> Iterator[tuple[Corruption, str, NDArray[np.intp]]]:
    """Yield what is damaged how: the damage, "train" or "test", and the rows; `split` is that of each image (N,)."""
    test, others = np.flatnonzero(split == "test"), np.flatnonzero(split != "test")
    for kind in KINDS:
        yield Corruption(kind, EVERYWHERE), "train", others
    for strength in STRENGTHS:
        for kind in KINDS:
            yield Corruption(kind, strength), "test", test


def cached_features(
    file: Path,
    data: Prepared,
    rows: NDArray[np.intp],
    damage: Corruption | None,
    extract: Callable[[NDArray[np.uint8]], NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Return what `extract` (images to (…, M, D)) makes of damaged images, all at once (…, N, D); computed once and cached in a file."""
    if not file.is_file():
        made, began = [], time.perf_counter()
        for start in range(0, len(rows), 32):
            some = rows[start : start + 32]
            images = data.images(some)
            if damage is not None:
                ids = data.records.image_id[some].tolist()
                images = np.stack([corrupt(one, damage, i) for one, i in zip(images, ids, strict=True)])
            made.append(extract(images))
        with atomic_write(file) as sink:
            np.save(sink, np.concatenate(made, axis=-2), allow_pickle=False)
        print(f"{file.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return np.asarray(np.load(file, allow_pickle=False))


def damaged_features(data: Prepared, out: Path) -> Damaged:
    """Return the features of the undamaged and damaged images; each cell is computed once and kept below `out`."""
    clean = trunk_features(TRUNK, data, CPU)
    cells, rows, found = [np.full(len(clean), "")], [np.arange(len(clean))], [clean]
    extract = Extractor(TRUNK, CPU)
    for damage, split, some in damaged_parts(data.records.split):
        cell = cell_of(damage.kind, damage.strength)
        cells.append(np.full(len(some), cell))
        rows.append(some)
        found.append(cached_features(out / f"{cell}-{split}.npy", data, some, damage, extract))
    return Damaged(np.concatenate(cells), np.concatenate(rows), np.concatenate(found))


def division_of(number: int) -> int:
    """Return the division of the patients of a cross-validation; it does not depend on how many seeds are asked for."""
    return number % REPEATS


def head_runs(label: str, data: Path, seeds: int) -> Iterator[tuple[int, Run]]:
    """Yield the cross-validations of one method: their number, of which `division_of` gives the division, and the run."""
    for number in range(seeds * REPEATS):
        division = f"cross_validation.repeat={division_of(number)}"
        words = [*METHODS[label], f"cross_validation.folds={FOLDS}", division]
        yield number, load_run("real/frozen", words, data=str(data), task="in_domain", seed=number)


def predict_damaged(
    run: Run, runs: Path, damaged: Damaged, clean: NDArray[np.float32]
) -> dict[str, NDArray[np.float64]]:
    """Return mean, expected entropy and own uncertainty of every damaged image, by the run that did not see its patient.

    `clean` (N, D) are the features of the images as they are; those that train give the scale.
    """
    task = load_task(run.data, run.task)

    def inputs(division: Task, rows: NDArray[np.intp]) -> Tensor:
        mean, std = feature_scale(clean[division.splits["train"]])
        return torch.from_numpy((damaged.features[rows] - mean) / std)

    return predict_held_out(
        run, task, damaged.row, inputs, lambda one: run_folder(one, runs, task),
        lambda folder, _: load_posterior(folder)[1],
    )  # fmt: skip


def predict_held_out(
    run: Run,
    task: Task,
    rows: NDArray[np.intp],
    inputs: Callable[[Task, NDArray[np.intp]], Tensor],
    folder_of: Callable[[Run], Path],
    load: Callable[[Path, Run], Posterior],
    batch: int = 256,
) -> dict[str, NDArray[np.float64]]:
    """Return mean, expected entropy and own uncertainty of inputs, each by the fold of a cross-validation that did not see its patient.

    `rows` (M,) is the row of the task to which each input belongs; `inputs` returns the inputs at some of the M positions,
    as the run of a fold reads them.
    """
    found = {name: np.full(len(rows), np.nan) for name in ("mean", "aleatoric", "own")}
    for fold in member_runs(run):
        division = divided(task, fold)
        mine = np.flatnonzero(np.isin(rows, division.splits["test"]))
        images = inputs(division, mine)
        probs, own = [], []
        for one in member_runs(fold) or [fold]:
            posterior = load(folder_of(one), one)
            generator = torch.Generator().manual_seed(derive(one.seed, "damaged"))
            with torch.no_grad():
                drawn = [
                    posterior.predict(some, one.method.samples, generator)[..., 1].double()
                    for some in images.split(batch)
                ]
                probs.append(torch.cat(drawn, dim=1).numpy())
                if isinstance(posterior, UncertaintyPosterior):
                    own.append(
                        torch.cat([posterior.uncertainty(some).double() for some in images.split(batch)]).numpy()
                    )
        samples = np.concatenate(probs)
        if fold.method.name == "temperature":
            (member,) = member_runs(fold)
            known = read_predictions(folder_of(member) / "predictions.parquet")
            held = known.select(split="validation")
            assert held is not None
            samples = scaled(samples, best_temperature(held.label, held.probs))
        found["mean"][mine] = samples.mean(axis=0)
        found["aleatoric"][mine] = entropy(samples).mean(axis=0)
        if own:
            found["own"][mine] = np.mean(own, axis=0)
    return found


def entropy(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy of Bernoulli distributions, in nats."""
    p = np.clip(probs, 1e-300, 1)
    q = np.clip(1 - probs, 1e-300, 1)
    return np.asarray(-p * np.log(p) - q * np.log(q))


def view_features(data: Prepared, out: Path, damaged: Damaged) -> Iterator[Damaged]:
    """Yield seven mirrored and turned views of the undamaged and damaged images; kept below `out`."""
    views = make_views("dihedral", DIHEDRAL, torch.Generator())[1:]
    trunk = Extractor(TRUNK, CPU)

    def extract(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        return np.stack([trunk(view(pixels).permute(0, 2, 3, 1).contiguous().numpy()) for view in views])

    every = np.arange(len(data.records))
    found = [cached_features(out / "views-undamaged-all.npy", data, every, None, extract)]
    for damage, split, some in damaged_parts(data.records.split):
        file = out / f"views-{cell_of(damage.kind, damage.strength)}-{split}.npy"
        found.append(cached_features(file, data, some, damage, extract))
    for features in np.concatenate(found, axis=1):
        yield replace(damaged, features=features)


def compute_views(data: Path, out: Path, damaged: Damaged, seeds: int) -> None:
    """Predict the views by the heads of MAP: what `tta` does, with features in place of images."""
    clean = damaged.features[damaged.cell == ""]
    views = [damaged, *view_features(open_prepared(data), out / "damage", damaged)]
    for number, run in head_runs("MAP", data, seeds):
        file = out / "heads" / f"{TTA.replace(' ', '-')}-{number}.npz"
        if not file.is_file():
            means = np.stack([predict_damaged(run, out / "runs", one, clean)["mean"] for one in views])
            own = np.full(means.shape[1], np.nan)
            with atomic_write(file) as sink:
                np.savez(sink, mean=means.mean(axis=0), aleatoric=entropy(means).mean(axis=0), own=own)


def compute_heads(data: Path, out: Path, damaged: Damaged, seeds: int) -> None:
    """Train the heads of every method, one seed of each division after the other, and keep their predictions."""
    order = [(number, label, run) for label in METHODS for number, run in head_runs(label, data, seeds)]
    # Of the first seed all methods, one division after the other; of each further seed first the methods that are pooled.
    order.sort(key=lambda one: (one[0] // REPEATS, one[0] >= REPEATS and one[1] not in POOLED, one[0]))
    for number, label, run in order:
        file = out / "heads" / f"{label.replace(' ', '-')}-{number}.npz"
        if file.is_file():
            continue
        began = time.perf_counter()
        try:
            execute(run, out / "runs", Resources("cpu"))
            found = predict_damaged(run, out / "runs", damaged, damaged.features[damaged.cell == ""])
        except (InputError, WorkError) as error:
            print(f"{label} {number}: {error}", flush=True)
            continue
        file.parent.mkdir(exist_ok=True)
        with atomic_write(file) as sink:
            np.savez(sink, **found)
        print(f"{label} {number}: {time.perf_counter() - began:.0f} s", flush=True)


Grid = tuple[list[str], dict[str, tuple[float, ...]]]  # the settings of all points, and the values of the others


TEMPERATURES, RATES = {"method.temperature": (1, 0.1, 0.01, 0.001)}, {"optimizer.lr": (0.02, 0.005)}


GRIDS: dict[str, Grid] = {
    "SGLD": (["method=sgld", "method.samples=60", PRIOR], TEMPERATURES | RATES),
    "SGHMC": (["method=sghmc", "method.samples=60", PRIOR], TEMPERATURES | RATES),
    "cyclical SGHMC": (["method=csghmc", "method.samples=20", PRIOR], TEMPERATURES | RATES),
    "anchored ensemble": (
        ["method=ensemble", "method.member=anchored", "method.members=5", PRIOR],
        {"optimizer.l2": (0.15, 0.5, 1.5)},
    ),
    "sequential anchored": (
        ["method=sequential_anchored", "method.samples=10", PRIOR],
        {"optimizer.l2": (0.15, 0.5, 1.5, 5.0)},
    ),
    "FSVI": (["method=fsvi", "method.samples=64"], {"method.prior_variance": (1, 10, 100)} | RATES),
}


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

    def load(self, chunks: Sequence[Rows], stored_view: Augment = unchanged) -> Iterator[tuple[Tensor, Tensor]]:
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
        return Training(Tail(network), batches, lambda posterior: predict(run, task, posterior, batches), "Training")


def tested(task: Task) -> Task:
    """Return the task without the damaged copies of the validation images, which nothing needs."""
    return replace(task, splits={k: rows for k, rows in task.splits.items() if k != "shifted_validation"})


def with_damage(task: Task) -> Task:
    """Return the task with its images a second to tenth time as shifted ones: under each kind of damage."""
    records, shifted = task.records, np.full(len(task), "shifted")
    damaged = [
        replace(records, image_id=np.array([f"{one}@{kind}" for one in records.image_id.tolist()]), domain=shifted)
        for kind in KINDS
    ]
    data = replace(task.data, records=join([records, *damaged]))
    rows = np.arange(len(records), len(data.records))
    return replace(task, data=data, splits={**task.splits, "shifted_test": rows})


def damaged_images(task: Task, rows: NDArray[np.intp], kind: str, strength: int = EVERYWHERE) -> NDArray[np.uint8]:
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
    ids = [f"{one}@{kind}" if kind else one for one, kind in zip(records.image_id[row].tolist(), kinds, strict=True)]
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
            [part[torch.from_numpy(positions[positions // each == k] % each)] for k, part in enumerate(self.parts)]
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


SCRATCH_PRESET, SCRATCH_SIZE, CPU = "real/small", 128, torch.device("cpu")


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
        source = ImageSource(data, CPU, splits["train"])  # type: ignore[arg-type]
        batches = Batches(
            source, splits["train"], splits["validation"], run.optimizer.batch_size, run.seed, run.optimizer.augment
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
            yield (label, number, load_run(SCRATCH_PRESET, settings, data=str(data), task="in_domain", seed=number))


def heads(out: Path, options: argparse.Namespace) -> None:
    """Compute the features and the heads of all methods, then the views of MAP."""
    prepare("idrid", out / "data", recipe=Recipe(SIZE), source=options.source, workers=1)
    (out / "damage").mkdir(exist_ok=True)
    damaged = damaged_features(open_prepared(out / "data"), out / "damage")
    compute_heads(out / "data", out, damaged, options.seeds)
    compute_views(out / "data", out, damaged, options.seeds)


def search(out: Path, options: argparse.Namespace) -> None:
    """Print the scores of all points of `GRIDS` on the training images."""
    task = load_task(str(out / "data"), "in_domain")
    training = np.flatnonzero(task.records.split != "test")
    none = np.empty(0, np.intp)
    task = replace(task, splits={"train": training, "validation": none, "test": none})
    for label, (fixed, free) in GRIDS.items():
        for values in product(*free.values()):
            point = [f"{name}={value}" for name, value in zip(free, values, strict=True)]
            words = [*fixed, *point, f"cross_validation.folds={FOLDS}"]
            run = load_run("real/frozen", words, data=str(out / "data"), task="in_domain", seed=0)
            runs = ImageRuns(task)
            try:
                found = runs.read(execute_run(runs, run, out / "search", Resources("cpu")))
            except WorkError as error:
                print(f"{label} {' '.join(point)}: {error}", flush=True)
                continue
            assert len(found) == len(training)
            scores = nll(found.label, found.prob), auroc(found.label, found.prob)
            print(f"{label} {' '.join(point)}: NLL {scores[0]:.4f}, AUROC {scores[1]:.4f}", flush=True)


def finetuned(out: Path, options: argparse.Namespace) -> None:
    """Train the fine-tuned networks, and predict the other strengths of damage by them."""
    plain = load_task(str(out / "data"), "in_domain")
    folder = out / "finetuned"
    folder.mkdir(exist_ok=True)
    stages = FrozenStages(plain, folder)
    runs = TailRuns(with_damage(plain), inputs=frozen_outputs(plain, stages))
    order = list(finetuned_runs(out / "data", options.runs))
    compute(runs, plain, folder, order)
    others = other_strengths(plain, stages)
    for label, number, run in order:
        began = time.perf_counter()
        if add_strengths(runs, plain, others, file_of(folder, label, number), run):
            print(f"{label} {number}, other strengths: {time.perf_counter() - began:.0f} s", flush=True)


def views(out: Path, options: argparse.Namespace) -> None:
    """Predict the views by the fine-tuned networks of MAP."""
    folder = out / "finetuned"
    task = load_task(str(out / "data"), "in_domain")
    stages, runs = FrozenStages(task, folder), TailRuns(with_damage(task), inputs=torch.empty(0))
    order = finetuned_runs(out / "data", options.runs)
    trained = {n: run for label, n, run in order if label == "MAP" and file_of(folder, label, n).is_file()}
    found: dict[int, list[NDArray[np.float64]]] = {number: [] for number in trained}
    (folder / "views").mkdir(exist_ok=True)
    for cell in cells(task):
        file = folder / "views" / f"{cell.name}.npy"
        if not file.is_file():
            began = time.perf_counter()
            probs = predicted_views(runs, stages, cell, list(trained.values()), folder)
            with atomic_write(file) as sink:
                np.save(sink, probs, allow_pickle=False)
            print(f"{file.name}: {time.perf_counter() - began:.0f} s", flush=True)
        for number, probs in zip(trained, np.load(file, allow_pickle=False), strict=True):
            found[number].append(probs)
    for number, parts in found.items():
        as_it_is = np.load(file_of(folder, "MAP", number), allow_pickle=False)["mean"]
        probs = np.concatenate([as_it_is[None], np.concatenate(parts, axis=1)])
        own = np.full(probs.shape[1], np.nan)
        with atomic_write(file_of(folder, TTA, number)) as sink:
            np.savez(sink, mean=probs.mean(axis=0), aleatoric=entropy(probs).mean(axis=0), own=own)


def scratch(out: Path, options: argparse.Namespace) -> None:
    """Train networks from scratch."""
    folder = out / "scratch"
    prepare("idrid", folder / "data", recipe=Recipe(SCRATCH_SIZE), source=options.source, workers=1)
    task = load_task(str(folder / "data"), "in_domain")
    runs = ScratchRuns(with_damage(task), pixels=all_images(task, folder / "images.npy"))
    compute(runs, task, folder, scratch_runs(folder / "data", options.seeds))


STEPS = {one.__name__: one for one in (heads, search, finetuned, views, scratch)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--source", type=Path, help="of heads and scratch")
    parser.add_argument("--out", type=Path, default=Path("results-real"))
    parser.add_argument("--seeds", type=int, default=3, help="of each division")
    parser.add_argument("--runs", type=int, default=5, help="fine-tuned cross-validations, of the divisions in turn")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    STEPS[options.step](options.out, options)


if __name__ == "__main__":
    main()
