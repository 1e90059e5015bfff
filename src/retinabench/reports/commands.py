"""What the verbs `score` and `report` do with files; the right-hand side of the predictions file: no torch here."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_bytes, write_json
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.data.merge import open_data
from retinabench.predictions.io import find_files, read_predictions
from retinabench.predictions.table import Predictions

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
        for one, name in zip(predictions, _names(files, predictions), strict=True):
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
    from retinabench.metrics.inference.compare import compare

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


def report_files(
    paths: Sequence[Path],
    out: Path,
    data: Path | None,
    title: str | None,
    rules: str,
    bootstrap: int,
    seed: int,
    progress: Progress = QUIET,
    shifted: Path | None = None,
) -> Path:
    """Write a report about files; seeds of one method and configuration stand together."""
    from retinabench.reports.evaluation.page import write_report

    if shifted is not None and data is None:
        raise InputError("--shifted needs --data", hint="Name the folders as `train` had them.")
    files = find_files(paths)
    predictions = [read_predictions(file) for file in files]
    entries: dict[str, list[Predictions]] = {}
    for name, one in zip(_names(files, predictions), predictions, strict=True):
        entries.setdefault(name, []).append(one)
    pictures = open_data(data, shifted) if data is not None else None
    extra = {"title": title} if title else {}
    with progress.track("Report", 100, unit="%") as advance:
        return write_report(
            entries,
            out,
            images=pictures.image if pictures else None,
            rules=rules,
            bootstrap=bootstrap,
            seed=seed,
            progress=shares(advance),
            **extra,
        )


def shares(advance: Any) -> Any:
    """Turn `advance(steps of 100)` into a callback of (what, share done)."""
    done = [0]

    def tell(what: str, share: float) -> None:
        advance(round(100 * share) - done[0])
        done[0] = round(100 * share)

    return tell


def _names(files: Sequence[Path], predictions: Sequence[Predictions]) -> list[str]:
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
    """One row per file, set and score."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["file", "entry", "rules", "set", "score", "value", "low", "high", "version"])
    writer.writerows(_rows(found))
    return sink.getvalue().encode()


def _rows(found: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    for file in found:
        for set_name, one in file["sets"].items():
            for name, entry in one["scores"].items():
                numbers = [entry.get(key) for key in ("value", "low", "high", "version")]
                yield [file["source"], file["entry"], file["rules"], set_name, name, *numbers]
