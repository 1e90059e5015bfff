"""What `retinabench prepare` lets a user say about a data set: which options belong to which, and downloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError
from retinabench.core.progress import Progress
from retinabench.data.ingest.download import fetch
from retinabench.data.registry import find_dataset

ONLY_SYNTHETIC = ("images", "seed")
ONLY_FOLDER = ("labels", "columns")


def dataset_options(
    name: str, source: Path | None, *, column: Sequence[str] | None = None, **given: Any
) -> dict[str, Any]:
    """Return the options that were given, for `Dataset.records`.

    Raises `InputError` for an unknown data set, one that needs a source, or an option that another data set has.
    """
    steps = find_dataset(name).steps
    options = {key: value for key, value in given.items() if value is not None}
    if column:
        options["columns"] = _columns(column)
    for key in options:
        shown = f"--{key.replace('columns', 'column')}"
        if key in ONLY_SYNTHETIC and name != "synthetic":
            raise InputError(f"{shown} is for synthetic data only", hint="Leave it out.")
        if key in ONLY_FOLDER and name != "folder":
            raise InputError(f"{shown} is for the data set 'folder' only", hint="Leave it out.")
        if key == "split" and name == "synthetic":
            raise InputError("--split is not for synthetic data", hint="Leave it out.")
    if name != "synthetic" and source is None:
        raise InputError(f"{name} is read from files", hint=f"Name them with --source. {steps}")
    return options


def download_source(name: str, source: Path | None, size: int, progress: Progress) -> None:
    """Fetch into `source` what can be had without a login.

    Raises `InputError` with the steps by hand for the other data sets.
    """
    dataset = find_dataset(name)
    if dataset.remote is None or source is None:
        raise InputError(f"{name} has no direct download", hint=dataset.steps)
    fetch(dataset.remote(size), source, progress)


def _columns(words: Sequence[str]) -> dict[str, str]:
    columns = {}
    for word in words:
        role, equals, name = word.partition("=")
        if not (role and equals and name):
            raise InputError(f"--column {word} is not ROLE=NAME", hint="For example: --column grade=icdr")
        columns[role] = name
    return columns
