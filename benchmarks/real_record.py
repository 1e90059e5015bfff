"""What the fine-tuned networks of IDRiD predict for the official test images under every damage, in `real_finetuned.npz`.

    python benchmarks/real_finetuned.py --out results-real              # trains the networks
    python benchmarks/real_views.py --out results-real                  # test-time augmentation of MAP
    python benchmarks/real_record.py --out results-real                 # adds what is finished to the file
    python benchmarks/real_findings.py --out results-real --recorded    # scores what the file holds

The file has one row for each cross-validation, so that `docs/tables/real-damage-by-strength.csv` can be made again without training:

names: (R,) method and number, such as ``MC-dropout-0``.
position: (M,) places of the images, undamaged and damaged, in the order of `real.Damaged`.
mean: (R, M) P(referable).
own/NAME: (M,) the own uncertainty of a method that has one, in place of the entropy.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from real import damaged_parts

from retinabench.core.files import atomic_write
from retinabench.data.prepared import open_prepared

RECORD = Path(__file__).with_name("real_finetuned.npz")


def test_positions(split: NDArray[np.str_]) -> NDArray[np.intp]:
    """Return the places of the official test images in the order of `real.Damaged`; `split` is that of each image (N,)."""
    rows = [np.arange(len(split)), *(some for _, _, some in damaged_parts(split))]
    return np.flatnonzero(split[np.concatenate(rows)] == "test")


def recorded(file: Path, length: int) -> Iterator[tuple[str, dict[str, NDArray[np.float64]]]]:
    """Yield the names of a record with their columns: mean and own uncertainty (`length`,), NaN where a run has no prediction."""
    content = np.load(file, allow_pickle=False)
    for name, mean in zip(content["names"].tolist(), content["mean"], strict=True):
        found = {key: np.full(length, np.nan) for key in ("mean", "own")}
        found["mean"][content["position"]] = mean
        if f"own/{name}" in content:
            found["own"][content["position"]] = content[f"own/{name}"]
        yield name, found


def add(file: Path, folder: Path, position: NDArray[np.intp]) -> int:
    """Add the finished runs of a folder to a record, in place of older ones of their names; return how many it holds.

    Args:
        file: The record; it is made where there is none.
        folder: Predictions of cross-validations, `NAME.npz`.
        position: (M,) places of the images that are recorded.

    Returns:
        The number of cross-validations in the record.
    """
    mean: dict[str, NDArray[np.float32]] = {}
    own: dict[str, NDArray[np.float32]] = {}
    if file.is_file():
        content = np.load(file, allow_pickle=False)
        mean |= dict(zip(content["names"].tolist(), content["mean"], strict=True))
        own |= {name: content[name] for name in content.files if name.startswith("own/")}
    for path in folder.glob("*.npz"):
        found = np.load(path, allow_pickle=False)
        if not np.isnan(found["mean"][position]).any():
            mean[path.stem] = found["mean"][position].astype(np.float32)
            if not np.isnan(found["own"][position]).any():
                own[f"own/{path.stem}"] = found["own"][position].astype(np.float32)
    names = sorted(mean)
    table = np.stack([mean[name] for name in names])
    with atomic_write(file) as sink:
        np.savez_compressed(sink, names=np.array(names), position=position, mean=table, **own)
    return len(names)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results-real"), help="that of real_finetuned.py")
    options = parser.parse_args(arguments)
    split = open_prepared(options.out / "data").records.split
    print(f"{RECORD.name}: {add(RECORD, options.out / 'finetuned', test_positions(split))} cross-validations")


if __name__ == "__main__":
    main()
