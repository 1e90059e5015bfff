"""What a frozen benchmark is: data, task, sets and seeds, and the truth and the hash of every image.

A definition is a TOML file in `definitions/`, beside a Parquet file of the same name with one row per image: image_id, label,
grade, patient_id, domain, split and the first 16 bytes of the image's SHA-256. A change of either is another benchmark with
another name; nothing here is ever edited. Images of a drawn benchmark are hashed by their pixels (size, size, 3) as training
reads them, so that no encoder matters; those of a published data set by their files.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from pydantic import Field

from retinabench.core.errors import InputError, nearest
from retinabench.core.settings import Frozen

HERE = Path(__file__).parent / "definitions"
HASH_BYTES = 16


class DrawingSettings(Frozen):
    """How the images are drawn."""

    images: int
    size: int
    seed: int


class FrozenBenchmark(Frozen):
    """A frozen benchmark."""

    name: str
    title: str
    about: str
    dataset: str
    task: str
    draw: DrawingSettings | None = None
    sets: tuple[Literal["in_domain", "shifted"], ...]
    seeds: int = Field(3, ge=1)
    images: int
    hash_of: Literal["pixels", "files"]
    listing_sha256: str
    truth_sha256: str
    made_with: dict[str, str] = Field(default_factory=dict)
    study: str = ""
    primary: str = "referral_accuracy_area"
    source: str


@dataclass(frozen=True, eq=False)
class BenchmarkTruth:
    """The truth of every image of a benchmark, in the order of their ids; `image_id`, `label`, `grade`, `patient_id`, `domain`, `split`, `sha256` (N,)."""

    image_id: NDArray[np.str_]
    label: NDArray[np.int8]
    grade: NDArray[np.int8]
    patient_id: NDArray[np.str_]
    domain: NDArray[np.str_]
    split: NDArray[np.str_]
    sha256: NDArray[np.str_]

    @property
    def test(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.split == "test")

    def digest(self) -> str:
        """Return the SHA-256 of everything but the images' hashes."""
        columns = (self.image_id, self.label, self.grade, self.patient_id, self.domain, self.split)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return lines_sha256(" ".join(map(str, row)) for row in rows)


def benchmark_names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.toml"))


@cache
def drawn_names() -> tuple[str, ...]:
    return tuple(name for name in benchmark_names() if frozen_benchmark(name).draw is not None)


@cache
def frozen_benchmark(name: str) -> FrozenBenchmark:
    if name not in benchmark_names():
        raise InputError(f"unknown benchmark '{name}'", hint=nearest(name, benchmark_names()))
    return FrozenBenchmark(**tomllib.loads((HERE / f"{name}.toml").read_text("utf-8")))


@cache
def truth_of(name: str) -> BenchmarkTruth:
    benchmark = frozen_benchmark(name)
    table = pyarrow.parquet.read_table(HERE / f"{name}.parquet")
    text = {key: table[key].to_numpy().astype(np.str_) for key in ("image_id", "patient_id", "domain", "split")}
    numbers = {key: table[key].to_numpy().astype(np.int8) for key in ("label", "grade")}
    sha256 = np.array([value.hex() for value in table["sha256"].to_pylist()])
    found = BenchmarkTruth(**text, **numbers, sha256=sha256)
    if found.digest() != benchmark.truth_sha256:
        hint = "Install retinabench again."
        raise InputError("does not have the content of its definition", file=HERE / f"{name}.parquet", hint=hint)
    return found


def lines_sha256(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def listing_sha256(image_ids: Iterable[str], sha256: Iterable[str]) -> str:
    return lines_sha256(f"{name} {digest}" for name, digest in sorted(zip(image_ids, sha256, strict=True)))
