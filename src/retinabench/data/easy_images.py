"""A prepared folder that any method learns within seconds, for conformance checks and tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from retinabench.core.files import write_bytes, write_json
from retinabench.data.dataset import MODERATE, Records, join, make_records, to_parquet
from retinabench.data.prepare import SCHEMA
from retinabench.data.prepared import complete, write_shard

EASY_PARTS = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32),
              ("shifted", "validation", 16), ("shifted", "test", 24))  # fmt: skip


def write_easy_data(
    folder: Path, size: int = 16, seed: int = 0, parts: tuple[tuple[str, str, int], ...] = EASY_PARTS
) -> Path:
    """Write a prepared folder whose referable images have a bright patch: a network learns it in seconds."""
    random = np.random.default_rng(seed)
    records = join([_records(domain, split, n, random) for domain, split, n in parts])
    images = random.integers(40, 90, (len(records), size, size, 3), dtype=np.uint8)
    images[records.grade >= MODERATE, 4:9, 4:9] += 100
    folder.mkdir(parents=True)
    shard = folder / "images-00000.npy"
    write_shard(shard, images)
    files = [{"image_id": str(name), "source": str(name), "status": "ok"} for name in records.image_id]
    write_bytes(folder / "files.parquet", to_parquet(pa.Table.from_pylist(files, SCHEMA)))
    write_json(folder / "prepare.json", {})
    complete(folder, records, [shard], {"preprocess": "none"}, name="patches", size=size, checked=False)
    return folder


def _records(domain: str, split: str, n: int, random: np.random.Generator) -> Records:
    name = f"{domain}-{split}"
    return make_records(
        (f"{name}-{k}" for k in range(n)),
        random.choice(5, n, p=[0.5, 0.1, 0.2, 0.1, 0.1]),
        patient_id=(f"{name}-p{k // 2}" for k in range(n)),
        eye=["left", "right"] * (n // 2),
        domain=domain,
        split=split,
        source=map(str, range(n)),
    )
