"""The findings of docs/results.md on real photographs: every method on IDRiD with a pretrained trunk, under graded damage.

    python benchmarks/real.py --source ~/idrid --out results-real

`--source` is the data set as `retinabench prepare idrid` reads it. A stopped command continues where it was. In order:

1. the 516 images at 320 px, and the features of EfficientNet-Lite0 (the preset `real/frozen`), undamaged and under nine kinds of
   damage at five strengths (`prepare --corrupt`): the official test images at all strengths, the others at strength 3;
2. heads of every method on the features by repeated, patient-disjoint 5-fold cross-validation (`cross_validation`): two divisions
   of the patients, each with `--seeds` seeds, so that every image is predicted by runs that did not see its patient;
3. the heads of MAP on the features of eight views of each image, undamaged and damaged (`tta`).

`benchmarks/real_findings.py` scores what is there, however far the command came, and makes the tables. `lora_ensemble`, which trains
adapters in the trunk, is one of `real_finetuned.py`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import atomic_write
from retinabench.core.seeds import derive
from retinabench.data.prepare import prepare
from retinabench.data.prepared import Prepared, open_prepared
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS, Corruption, corrupt
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.features import Extractor, feature_scale, trunk_features
from retinabench.experiments.run import divided, execute, run_folder
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.composed import best_temperature, scaled
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior
from retinabench.methods.tta import DIHEDRAL, make_views
from retinabench.models.settings import ModelConfig
from retinabench.predictions.io import read_predictions

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
TUNED = {  # by `real_search.py`, on the 413 training images
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

POOLED = (
    "MAP",
    "MC dropout",
    "MFVI",
    "rank-1",
    "VBLL",
    "IVON",
    "cyclical SGHMC",
)  # also as ensembles of their seeds


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

    Args:
        run: The cross-validation.
        runs: Folder of its runs.
        damaged: The images.
        clean: (N, D) features of the images as they are; those that train give the scale.
    """
    task = load_task(run.data, run.task)

    def inputs(division: Task, rows: NDArray[np.intp]) -> Tensor:
        mean, std = feature_scale(clean[division.splits["train"]])
        return torch.from_numpy((damaged.features[rows] - mean) / std)

    return predict_held_out(
        run,
        task,
        damaged.row,
        inputs,
        lambda one: run_folder(one, runs, task),
        lambda folder, _: load_posterior(folder)[1],
    )


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

    Args:
        run: The cross-validation.
        task: Its task.
        rows: Row of the task to which each input belongs, (M,).
        inputs: Returns the inputs at some of the M positions, as the run of a fold reads them.
        folder_of: Returns the folder of a run.
        load: Returns the posterior of a folder and run.
        batch: Inputs at a time.
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
                        torch.cat(
                            [posterior.uncertainty(some).double() for some in images.split(batch)]
                        ).numpy()
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results-real"))
    parser.add_argument("--seeds", type=int, default=3, help="of each division")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = options.out
    prepare("idrid", out / "data", recipe=Recipe(SIZE), source=options.source, workers=1)
    (out / "damage").mkdir(exist_ok=True)
    damaged = damaged_features(open_prepared(out / "data"), out / "damage")
    compute_heads(out / "data", out, damaged, options.seeds)
    compute_views(out / "data", out, damaged, options.seeds)


if __name__ == "__main__":
    main()
