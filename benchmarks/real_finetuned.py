"""Every method on IDRiD fine-tuned as the preset `real/finetuned` does it, beside heads on the frozen trunk.

    python benchmarks/real.py --source ~/idrid --out results-real               # images, and the heads
    python benchmarks/real_finetuned.py --out results-real                      # continues where it was stopped

`real/finetuned` trains the last convolution of EfficientNet-Lite0 and the head. What that convolution reads never changes, so it is
computed once, for the 516 images and for the test images under nine kinds of damage at strength 3; each training then takes
seconds instead of minutes. Trainings are on the official training images, predictions on the official test images. `tta` needs
images and is left out. The command writes `finetuned.md` below `--out` whenever it is called, with what is there.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from real import EVERYWHERE, METHODS, REPEATS, cell_of
from real_findings import NAMES, REPLICATES, Study, interval
from torch import Tensor, nn

from retinabench.core.atomic_files import atomic_write, write_bytes
from retinabench.core.errors import InputError, WorkError
from retinabench.data.loader import ArraySource, Batches
from retinabench.data.preprocessing.corruption import KINDS, Corruption, corrupt
from retinabench.data.records import join
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import Resources, Training, execute_run
from retinabench.experiments.image_predictions import predict
from retinabench.experiments.run import FILE, ImageRuns
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import score_rows
from retinabench.metrics.sorted_images import Cases
from retinabench.models.build import build_model
from retinabench.models.networks.efficientnet_lite import EfficientNetLite
from retinabench.models.settings import SCALES
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
PRESET, SAMPLES = "real/finetuned", 16
TUNED = {**METHODS, "LoRA ensemble": ["method=lora_ensemble"]}
SHOWN = list(NAMES)[:4]


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


@dataclass(frozen=True, kw_only=True)
class TailRuns(ImageRuns):
    """Runs that read `inputs`, the outputs of the frozen stages, in place of images."""

    inputs: Tensor

    def training(self, run: Run, resources: Resources) -> Training[Predictions]:
        """Return the trainable part of the network, and batches of what it reads."""
        network = build_model(run.model, run.seed)
        assert isinstance(network, EfficientNetLite)
        splits = self.task.splits
        source = ArraySource(self.inputs, torch.from_numpy(self.task.targets.astype(np.float32)))
        batches = Batches(source, splits["train"], splits["validation"], run.optimizer.batch_size, run.seed)
        return Training(
            Tail(network), batches, lambda posterior: predict(run, self.task, posterior, batches), "Training"
        )


def with_damage(task: Task) -> Task:
    """Return the task with its test images a second to tenth time as shifted ones: under each kind of damage."""
    records, test = task.records, task.splits["test"]
    damaged = [
        replace(
            part := records.take(test),
            image_id=np.array([f"{one}@{kind}" for one in part.image_id]),
            domain=np.full(len(test), "shifted"),
        )
        for kind in KINDS
    ]
    joined = join([records, *damaged])
    data = replace(task.data, records=joined)
    return replace(
        task, data=data, splits={**task.splits, "shifted_test": np.arange(len(records), len(joined))}
    )


def frozen_outputs(task: Task, out: Path) -> Tensor:
    """Return what the last convolution reads (N, 320, H, W): the images of the task, then its damaged test images by kind."""
    run = load_run(PRESET, [], data=str(task.data.folder), task="in_domain", seed=0)
    network = build_model(run.model, 0)
    assert isinstance(network, EfficientNetLite)
    network.eval()
    read: list[Tensor] = []
    network.conv_head.register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    mean, std = (torch.tensor(values).reshape(1, 3, 1, 1) for values in SCALES[run.model.inputs])
    test, parts = task.splits["test"], []
    for kind in ("", *KINDS):
        file = out / f"frozen-{kind or 'undamaged'}.npy"
        if not file.is_file():
            rows = test if kind else np.arange(len(task))
            for start in range(0, len(rows), 32):
                chunk = rows[start : start + 32]
                images = task.data.images(chunk)
                if kind:
                    damage, ids = Corruption(kind, EVERYWHERE), task.image_id[chunk].tolist()
                    images = np.stack([corrupt(one, damage, i) for one, i in zip(images, ids, strict=True)])
                scaled = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)
                with torch.inference_mode():
                    network(scaled)
            with atomic_write(file) as sink:
                np.save(sink, torch.cat(read).contiguous().numpy(), allow_pickle=False)
            read.clear()
        parts.append(torch.from_numpy(np.load(file, allow_pickle=False)))
    return torch.cat(parts)


def compute(runs: TailRuns, out: Path, seeds: int) -> None:
    """Train every method, one seed after the other."""
    for seed in range(seeds):
        for label, words in TUNED.items():
            few = [word for word in words if not word.startswith("method.samples=64")]
            samples = [f"method.samples={SAMPLES}"] if len(few) < len(words) else []
            began = time.perf_counter()
            try:
                run = load_run(
                    PRESET, [*few, *samples], data=str(runs.task.data.folder), task="in_domain", seed=seed
                )
                folder = execute_run(runs, run, out / "runs", Resources("cpu"))
            except (InputError, WorkError) as error:
                print(f"{label} {seed}: {error}", flush=True)
                continue
            write_bytes(out / f"{label.replace(' ', '-')}-{seed}.txt", folder.name.encode())
            if (seconds := time.perf_counter() - began) > 1:
                print(f"{label} {seed}: {seconds:.0f} s", flush=True)


def draws_of(found: Predictions, study: Study) -> Floats:
    """Return scores (1 + kinds, scores, 1 + replicates) of the predictions of one run on the test images."""
    row = {name: number for number, name in enumerate(study.records.image_id.tolist())}
    stem = np.array([name.partition("@")[0] for name in found.image_id.tolist()])
    kind = np.array([name.partition("@")[2] for name in found.image_id.tolist()])
    rows = np.array([row[name] for name in stem.tolist()])
    test = (found.split == "test") & (study.records.split[rows] == "test")
    return np.stack([
        scores_of(study, rows[at], found.prob[at], None if found.uncertainty is None else found.uncertainty[at])
        for at in (np.flatnonzero(test & (kind == one)) for one in ("", *KINDS))
    ])  # fmt: skip


def scores_of(study: Study, rows: NDArray[np.intp], mean: Floats, own: Floats | None) -> Floats:
    """Return scores (scores, 1 + replicates) of predictions of some rows of the data set."""
    p = np.clip(mean, 1e-300, 1 - 1e-16)
    uncertainty = -p * np.log(p) - (1 - p) * np.log1p(-p) if own is None else own
    cases = Cases(study.label[rows], mean, uncertainty, patient=study.patient[rows])
    batch = Batch(cases, study.weights[:, rows][:, cases.order])
    return np.stack([score_rows(SCORES[name], batch) for name in SHOWN])


def frozen_draws(study: Study, label: str) -> Floats:
    """Return the same scores of the heads on the frozen trunk, mean over their runs."""
    test, found = np.flatnonzero(study.records.split == "test"), []
    for one in study.runs[label].values():
        table = []
        for cell in ("", *(cell_of(kind, EVERYWHERE) for kind in KINDS)):
            at = np.flatnonzero((study.cell == cell) & np.isin(study.row, test))
            own = one["own"][at]
            table.append(
                scores_of(study, study.row[at], one["mean"][at], None if np.isnan(own).any() else own)
            )
        found.append(np.stack(table))
    return np.asarray(np.mean(found, axis=0))


def table(study: Study, out: Path) -> str:
    """Return frozen and fine-tuned scores of every method on the test images, undamaged and damaged."""
    head = ["method", "trunk", "runs", *(f"{NAMES[s]}{w}" for w in ("", ", damaged") for s in SHOWN)]
    lines = [head, ["---"] * len(head)]
    for label in TUNED:
        trunks: list[tuple[str, int, Floats]] = []
        if label in study.runs:
            trunks.append(("frozen", len(study.runs[label]), frozen_draws(study, label)))
        files = sorted(out.glob(f"{label.replace(' ', '-')}-[0-9]*.txt"))
        if files:
            folders = [out / "runs" / file.read_text() for file in files]
            found = [draws_of(read_predictions(folder / FILE), study) for folder in folders]
            trunks.append(("fine-tuned", len(found), np.mean(found, axis=0)))
        for trunk, runs, draws in trunks:
            cells = [
                interval(part[k]) for part in (draws[0], draws[1:].mean(axis=0)) for k in range(len(SHOWN))
            ]
            lines.append([label, trunk, str(runs), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results-real"), help="that of real.py")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out = options.out / "finetuned"
    out.mkdir(exist_ok=True)
    task = load_task(str(options.out / "data"), "in_domain")
    inputs = frozen_outputs(task, out)
    compute(TailRuns(with_damage(task), inputs=inputs), out, options.seeds)
    study = Study(options.out)
    text = f"{REPLICATES} replicates; heads: {REPEATS} divisions of the patients.\n\n{table(study, out)}\n"
    write_bytes(options.out / "finetuned.md", text.encode())


if __name__ == "__main__":
    main()
