"""Small real things for tests: a prepared data set of easy pictures, and runs that take seconds."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.data.ingest.ingest_log import table_of, to_parquet
from retinabench.data.prepared import FORMAT, Records, fingerprint, join, write_shard

TINY = [
    "model.name=resnet18", "model.width=4", "model.stem=small",
    "optimizer.epochs=3", "optimizer.batch_size=16", "optimizer.lr=0.05",
]  # fmt: skip
PARTS = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32),
         ("shifted", "validation", 16), ("shifted", "test", 24))  # fmt: skip


def hear_interrupts() -> None:
    """Let a child hear Ctrl-C (`preexec_fn`): what a shell runs in the background inherits a deaf ear for it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def make_prepared(
    folder: Path, size: int = 16, seed: int = 0, parts: tuple[tuple[str, str, int], ...] = PARTS
) -> Path:
    """Write a prepared folder whose referable pictures have a bright patch: learnable in seconds."""
    random = np.random.default_rng(seed)
    records = join([_records(domain, split, n, random) for domain, split, n in parts])
    pictures = random.integers(40, 90, (len(records), size, size, 3), dtype=np.uint8)
    pictures[records.grade >= 2, 4:9, 4:9] += 100
    folder.mkdir(parents=True)
    write_shard(folder / "images-00000.npy", pictures)
    write_bytes(folder / "records.parquet", records.to_parquet())
    files = [{"image_id": str(name), "source": str(name), "status": "ok"} for name in records.image_id]
    write_bytes(folder / "files.parquet", to_parquet(table_of(files)))
    write_json(folder / "prepare.json", {})
    about = {
        "name": "patches", "format": FORMAT, "size": size, "shards": ["images-00000.npy"],
        "fingerprint": fingerprint(records, [folder / "images-00000.npy"]),
    }  # fmt: skip
    write_json(folder / "dataset.json", about)
    return folder


def _records(domain: str, split: str, n: int, random: np.random.Generator) -> Records:
    name = f"{domain}-{split}"
    return Records(
        image_id=np.array([f"{name}-{k}" for k in range(n)]),
        patient_id=np.array([f"{name}-p{k // 2}" for k in range(n)]),
        eye=np.array(["left", "right"] * (n // 2)),
        grade=random.choice(5, n, p=[0.5, 0.1, 0.2, 0.1, 0.1]).astype(np.int8),
        domain=np.full(n, domain),
        split=np.full(n, split),
        source=np.array([str(k) for k in range(n)]),
        p_referable=np.full(n, np.nan),
    )


def write_files(folder: Path, rows: list[dict[str, object]]) -> None:
    """Write a prepared folder's table of original files; every row names its `image_id`, the rest may be left out."""
    blank = {"source": "", "sha256": "", "bytes": 0, "width": 0, "height": 0, "status": "ok", "reason": ""}
    full = [blank | row for row in rows]
    columns = {name: [row[name] for row in full] for name in ("image_id", *blank)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "files.parquet")


def make_retinas(folder: Path, records: Records, pictures: np.ndarray) -> Path:
    """Write a prepared folder of given rows and pictures (N, S, S, 3), with no table of files."""
    make_prepared(folder)
    write_shard(folder / "images-00000.npy", pictures)
    write_bytes(folder / "records.parquet", records.to_parquet())
    (folder / "files.parquet").unlink(missing_ok=True)
    about = json.loads((folder / "dataset.json").read_text())
    write_json(folder / "dataset.json", about | {"name": "retinas", "size": pictures.shape[1]})
    return folder
