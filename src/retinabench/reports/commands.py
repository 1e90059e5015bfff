"""What the verbs `score`, `compare` and `transfer` do with files; nothing here imports torch, Pillow or a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.predictions.io import find_files, read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.toolkit.renderers import csv_bytes

LIST_SCHEMA = "retinabench.scores-list/1"


def score_files(
    paths: Sequence[Path],
    rules: str,
    bootstrap: int,
    uncertainty: str,
    seed: int,
    json_out: Path | None,
    csv_out: Path | None,
    progress: Progress = QUIET,
) -> list[dict[str, Any]]:
    """Score files and write JSON (one file: its scores; several: a list under `files`) and CSV where asked for."""
    from retinabench.metrics.score import score

    files = find_files(paths)
    predictions = [read_predictions(file) for file in files]  # all are checked before the long work begins
    found = []
    with progress.track("Scoring", len(files), unit="files") as advance:
        for one, name in zip(predictions, method_names(files, predictions), strict=True):
            scores = score(one, rules, bootstrap, seed, uncertainty)
            found.append(scores.to_dict() | {"entry": name})
            advance(1)
    if json_out is not None:
        write_json(json_out, found[0] if len(found) == 1 else {"schema": LIST_SCHEMA, "files": found})
    if csv_out is not None:
        write_bytes(csv_out, _csv(found))
    return found


def compare_files(
    a: Path,
    b: Path,
    rules: str,
    bootstrap: int,
    uncertainty: str,
    seed: int,
    json_out: Path | None,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """Compare two files and write JSON where asked for."""
    from retinabench.metrics.comparison.compare import compare

    first, second = (read_predictions(file) for file in find_files([a, b]))
    with progress.track("Comparing", 1, unit="pair") as advance:
        found = compare(first, second, rules, bootstrap, seed, uncertainty=uncertainty).to_dict()
        advance(1)
    if json_out is not None:
        write_json(json_out, found)
    return found


def transfer_file(
    path: Path,
    target: str,
    goal: float,
    confidence: float | None,
    bootstrap: int,
    uncertainty: str,
    seed: int,
    json_out: Path | None,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """Choose a threshold on the validation split of a file, and write JSON where asked for."""
    from retinabench.metrics.clinical.threshold_transfer import transfer

    if confidence is not None and not 0 < confidence < 1:
        raise InputError(f"--confidence {confidence:g} is not between 0 and 1", hint="For example 0.95.")
    (file,) = find_files([path])
    predictions = read_predictions(file)
    delta = None if confidence is None else 1 - confidence
    with progress.track("Choosing and testing a threshold", 1, unit="file") as advance:
        found = transfer(
            predictions, target, goal, delta=delta, uncertainty=uncertainty, bootstrap=bootstrap, seed=seed
        ).to_dict()
        advance(1)
    if json_out is not None:
        write_json(json_out, found)
    return found


def method_names(files: Sequence[Path], predictions: Sequence[Predictions]) -> list[str]:
    """Name each file: runs by their method, told apart where they differ in more than the seed; others by file."""
    titles = [str(one.metadata.get("title", "")) for one in predictions]
    settings = [str(one.metadata.get("setting", "")) for one in predictions]
    names = []
    for file, title, setting in zip(files, titles, settings, strict=True):
        shared = {other for other, same in zip(settings, titles, strict=True) if same == title}
        alone = sum(other.stem == file.stem for other in files) == 1
        names.append(
            (f"{title} ({setting})" if len(shared) > 1 else title) or (file.stem if alone else str(file))
        )
    return names


def _csv(found: Sequence[dict[str, Any]]) -> bytes:
    """Return one row per file, set and score."""
    header = ["file", "entry", "rules", "set", "score", "value", "low", "high", "version"]
    return csv_bytes(header, _rows(found))


def _rows(found: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    for file in found:
        for set_name, one in file["sets"].items():
            for name, entry in one["scores"].items():
                numbers = [entry.get(key) for key in ("value", "low", "high", "version")]
                yield [file["source"], file["entry"], file["rules"], set_name, name, *numbers]
