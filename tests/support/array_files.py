"""Small files in the layouts of the array data sets: MedMNIST, CIFAR-10 and IMDB."""

import numpy as np

from retinabench.data.datasets import cifar10

GENERATOR = np.random.default_rng(0)


def write_medmnist(file, classes=7, train=20, test=10, side=28):
    arrays = {}
    for split, rows in (("train", train), ("val", 4), ("test", test)):
        arrays[f"{split}_images"] = GENERATOR.integers(0, 256, (rows, side, side, 3), dtype=np.uint8)
        arrays[f"{split}_labels"] = GENERATOR.integers(0, classes, (rows, 1), dtype=np.uint8)
    np.savez(file, **arrays)
    return arrays


def write_cifar(folder, per_file=6):
    batches, corrupted = folder / "cifar-10-batches-bin", folder / "CIFAR-10-C"
    batches.mkdir()
    corrupted.mkdir()
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        rows = GENERATOR.integers(0, 256, (per_file, 1 + cifar10.PIXELS), dtype=np.uint8)
        rows[:, 0] %= 10
        rows.tofile(batches / name)
    for kind, _ in cifar10.CORRUPTED:
        strengths = np.repeat(np.arange(1, 6, dtype=np.uint8), per_file)
        np.save(corrupted / f"{kind}.npy", np.broadcast_to(strengths[:, None, None, None], (5 * per_file, 32, 32, 3)))


def write_reviews(folder):
    texts = {
        "train/pos/0_9.txt": "Good, <br /><br />good film!", "train/neg/0_2.txt": "A bad film. It's BAD",
        "test/pos/1_8.txt": "unheard good " + "film " * 99, "test/neg/1_1.txt": "bad",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
