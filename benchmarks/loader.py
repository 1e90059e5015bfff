"""How fast batches come, beside `torch.utils.data` with Pillow decoding one JPEG per image, and beside what trains.

    OMP_NUM_THREADS=1 python benchmarks/loader.py [--images 512] [--rounds 5]

Drawn retinas are written twice: as prepared shards, and as JPEG files of the same size, which spares the opponent all
preprocessing. Both are read in the same shuffled order, in batches of 64, by one process, from a warm page cache. One
round measures everything once; ratios are taken within rounds, and the median round is printed.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from toolkit import parse, seconds
from torch.utils.data import DataLoader, Dataset

from retinabench.data.loader import Batches, ImageSource, chunks
from retinabench.data.prepare import prepare
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import load_run
from retinabench.methods.training.gradients import BatchInfo, cross_entropy
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import make_optimizer
from retinabench.models.build import build_model

BATCH = 64
CPU = torch.device("cpu")


class ImageFiles(Dataset):
    """What a first script does: open, decode, convert; one image (H, W, 3) uint8 and its label at a time."""

    def __init__(self, files, labels):
        self.files, self.labels = files, labels

    def __len__(self):
        return len(self.files)

    def __getitem__(self, row):
        with Image.open(self.files[row]) as picture:
            return torch.from_numpy(np.array(picture.convert("RGB"))), self.labels[row]


def write_both(folder: Path, size: int, images: int):
    data = prepare("synthetic", folder / "drawn", recipe=Recipe(size=size), images=images)
    files = [folder / f"{k:05d}.jpeg" for k in range(images)]
    for image, file in zip(data.images(np.arange(images)), files, strict=True):
        Image.fromarray(image).save(file, quality=90)
    return data, files


def speed(batches, images: int, work=lambda batch, labels: None) -> float:
    """Images per second of going through `batches` once and doing `work` on each."""

    def through() -> None:
        for batch, labels in batches:
            work(batch, labels)

    return images / seconds(through)


def training_step(run):
    model = build_model(run.model, run.seed)
    optimizer = make_optimizer(model.train(), run.optimizer)

    def step(batch, labels):
        loss = cross_entropy(model(batch), labels, Bernoulli(), BatchInfo.of(labels, reweight=run.optimizer.reweight))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def measure(size: int, images: int, rounds: int, folder: Path) -> dict[str, np.ndarray]:
    data, files = write_both(folder, size, images)
    rows = np.random.default_rng(0).permutation(images)
    labels = torch.from_numpy(data.label[:images].astype(np.float32))
    run = load_run("demo/map", data=str(data.folder))

    few = rows[: BATCH * (8 if size == 64 else 1)]  # floats of 512 px are no work for a CPU

    def batches(augment):
        return Batches(ImageSource(data, CPU, few), few, few, BATCH, 0, augment)

    pillow = DataLoader(ImageFiles(files, labels), BATCH, sampler=rows.tolist())
    step = training_step(run)
    batch = next(iter(batches("flip").epoch(0)))
    ways = {
        "stored, as bytes": lambda: speed(ImageSource(data, CPU).stored(chunks(rows, BATCH)), images),
        "torch.utils.data + Pillow": lambda: speed(pillow, images),
        "on the CPU: floats, standardised": lambda: speed(batches("none").epoch(0), len(few)),
        "on the CPU: and flip": lambda: speed(batches("flip").epoch(0), len(few)),
        "on the CPU: and affine": lambda: speed(batches("affine").epoch(0), len(few)),
    }
    if size == 64:
        # The same batch over and over: what the demo's network consumes when the loader costs nothing.
        ways["the demo's training"] = lambda: speed([batch] * 8, 8 * BATCH, step)
    for way in ways.values():
        way()  # warms the page cache
    return dict(zip(ways, np.array([[way() for way in ways.values()] for _ in range(rounds)]).T, strict=True))


def main() -> None:
    options = parse(__doc__, images=512, rounds=5, sizes=[64, 512])
    torch.set_num_threads(1)
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(size, options.images, options.rounds, Path(folder))
        ours = found["stored, as bytes"]
        print(f"\n{options.images} images of {size} px, batches of {BATCH}, one process, one thread")
        for name, speeds in found.items():
            line = f"  {name:34s} {np.median(speeds):10,.0f} images/s"
            if name != "stored, as bytes":
                line += f"   stored bytes come {np.median(ours / speeds):7.1f} times as fast"
            print(line)
        if size == 64:
            fed = found["on the CPU: and flip"] / found["the demo's training"]
            print(f"  flipped floats come {np.median(fed):.1f} times as fast as the demo's training takes them")


if __name__ == "__main__":
    main()
