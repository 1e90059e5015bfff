"""What a file or folder holds, in a few lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from retinabench.data.records import open_prepared
from retinabench.errors import InputError
from retinabench.formats import read_predictions


def inspect_path(path: Path) -> Iterator[str]:
    """Yield lines about a predictions file, a run folder or a prepared folder.

    Raises `InputError` where it is none of them.
    """
    if (path / "prepare.json").is_file():
        yield from _prepared(path)
    elif (path / "run.json").is_file():
        yield from _run(path)
    elif path.is_dir():
        raise InputError("is neither a run folder nor a prepared data set", file=path)
    else:
        yield from _predictions(path)


def _prepared(path: Path) -> Iterator[str]:
    data = open_prepared(path)
    records = data.records
    yield f"data set {data.name}, {len(records):,} images of {data.size} px, fingerprint {data.fingerprint[:12]}"
    for domain in np.unique(records.domain):
        for split in ("train", "validation", "test"):
            rows = (records.domain == domain) & (records.split == split)
            if rows.any():
                grades = "/".join(str(n) for n in np.bincount(records.grade[rows], minlength=5))
                patients = len(np.unique(records.patient_id[rows]))
                yield f"  {domain} {split}: {rows.sum():,} images, {patients:,} patients, grades 0-4: {grades}"


def _run(path: Path) -> Iterator[str]:
    about = json.loads((path / "run.json").read_text())
    state = "done" if (path / "done").is_file() else "unfinished"
    yield f"run, {state}, data fingerprint {about['fingerprint'][:12]}, version {about['version']}"
    yield json.dumps(about["run"])
    if (path / "metrics.jsonl").is_file():
        last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
        yield "last epoch: " + ", ".join(f"{key} {value:.4g}" for key, value in last.items())
    if (path / "predictions.parquet").is_file():
        yield from _predictions(path / "predictions.parquet")


def _predictions(path: Path) -> Iterator[str]:
    predictions = read_predictions(path)
    yield f"predictions, {len(predictions):,} images, {predictions.samples} samples each"
    for domain in ("in_domain", "shifted"):
        for split in ("validation", "test"):
            part = predictions.select(domain=domain, split=split)
            if part is not None:
                patients = (
                    "no patient ids"
                    if part.patient_id is None
                    else f"{len(np.unique(part.patient_id)):,} patients"
                )
                yield f"  {domain} {split}: {len(part):,} images, {patients}, {int(part.label.sum()):,} referable"
    if predictions.metadata:
        yield "metadata: " + ", ".join(
            f"{key} {value}" for key, value in sorted(predictions.metadata.items())
        )
