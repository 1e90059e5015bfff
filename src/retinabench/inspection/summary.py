"""The lines that `retinabench inspect` prints about a file or folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.files import check_writable
from retinabench.core.progress import QUIET, Progress
from retinabench.data.prepared.folder import open_prepared
from retinabench.inspection.inspection import Inspection, findings, inspect_data
from retinabench.inspection.write import write_inspection
from retinabench.predictions.io import read_predictions
from retinabench.reports.toolkit.pages import counted


def inspect_lines(
    path: Path, out: Path | None = None, seed: int = 0, progress: Progress = QUIET
) -> Iterator[str]:
    """Yield lines about a predictions file, a run folder or a prepared folder."""
    if (path / "prepare.json").is_file():
        data = open_prepared(path)
        if out is not None:
            if out.resolve() == path.resolve():
                raise InputError("is the data set itself", file=out, hint="Choose another --out.")
            check_writable(out)
        found = inspect_data(data, read_images=out is not None, progress=progress)
        page = write_inspection(found, out, seed=seed, progress=progress) if out is not None else None
        yield from _inspection(found)
        yield str(page or "copies among the images, outliers, contact sheets and a data card: add --out DIR")
    elif out is not None:
        raise InputError("is not a prepared data set; --out is for those", file=path, hint="Leave --out out.")
    elif (path / "run.json").is_file():
        yield from _run(path)
    elif path.is_dir():
        hint = "Prepare images with: retinabench prepare DATASET --source DIR --out DIR"
        raise InputError("is neither a run folder nor a prepared data set", file=path, hint=hint)
    else:
        yield from _predictions(path)


def _inspection(found: Inspection) -> Iterator[str]:
    """Yield the contents of a prepared data set and the findings."""
    data = found.data
    yield f"data set {data.name}, {len(data.records):,} images of {data.size} px, fingerprint {data.fingerprint[:12]}"
    for row in found.splits:
        counts = "/".join(str(n) for n in row.classes)
        classes = f"{found.classes.noun}s 0-{len(row.classes) - 1}: {counts}"
        images, patients = counted(row.images, "image"), counted(row.patients, "patient")
        yield f"  {row.split}: {images}, {patients}, {classes}"
    for finding in findings(found):
        yield f"{finding.lead} {finding.text}"


def _run(path: Path) -> Iterator[str]:
    state = "done" if (path / "done").is_file() else "unfinished"
    with _undamaged(path / "run.json") as file:
        about = json.loads(file.read_text())
        lines = [f"run, {state}, data fingerprint {about['fingerprint'][:12]}, version {about['version']}"]
        lines.append(json.dumps(about["run"]))
    if (path / "metrics.jsonl").is_file():
        with _undamaged(path / "metrics.jsonl") as file:
            last = json.loads(file.read_text().splitlines()[-1])
            lines.append("last epoch: " + ", ".join(f"{key} {value:.4g}" for key, value in last.items()))
    yield from lines
    if (path / "predictions.parquet").is_file():
        yield from _predictions(path / "predictions.parquet")


@contextlib.contextmanager
def _undamaged(file: Path) -> Iterator[Path]:
    """Say in one line that a file of a run does not hold what it should."""
    try:
        yield file
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise InputError("is damaged", file=file, hint="Train the run again.") from None


def _predictions(path: Path) -> Iterator[str]:
    predictions = read_predictions(path)
    yield f"predictions, {counted(len(predictions), 'image')}, {counted(predictions.samples, 'sample')} each"
    for domain in ("in_domain", "shifted"):
        for split in ("validation", "test"):
            part = predictions.select(domain=domain, split=split)
            if part is not None:
                patients = (
                    "no patient ids"
                    if part.patient_id is None
                    else counted(len(np.unique(part.patient_id)), "patient")
                )
                images = counted(len(part), "image")
                yield f"  {domain} {split}: {images}, {patients}, {int(part.label.sum()):,} referable"
    if predictions.metadata:
        yield "metadata: " + ", ".join(
            f"{key} {value}" for key, value in sorted(predictions.metadata.items())
        )
