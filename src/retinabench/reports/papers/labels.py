"""What a predictions file is: from its metadata, and from a CSV of labels for files that have none.

The CSV has a column `file` (relative to the CSV) and any of `method`, `task`, `criterion`, `blur`, `seed`, `members`; an
empty cell leaves the word to the file's metadata:

    file,method,task,blur,seed
    ours-0.csv,Our network,country_shift,30,0
    ours-1.csv,Our network,country_shift,30,1
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from retinabench.core.errors import InputError, nearest
from retinabench.predictions.table import Predictions

COLUMNS = ("file", "method", "task", "criterion", "blur", "seed", "members")
NUMBERS = ("blur", "seed", "members")
Labels = Mapping[Path, Mapping[str, str]]


@dataclass(frozen=True)
class Origin:
    """Where predictions come from. task, criterion: "" where not known. blur: of Graham's preprocessing, None if not known.

    setting: what runs that differ by the seed alone share. seed: None where not known.
    """

    method: str
    setting: str
    task: str = ""
    criterion: str = ""
    blur: int | None = None
    seed: int | None = None
    members: int = 1

    @property
    def base(self) -> str:
        """The method of a single member, as readers call it."""
        return re.sub(r"^ensemble of \d+ |\s+ensemble( of \d+)?$", "", self.method) or self.method

    @property
    def ensemble(self) -> bool:
        """Whether several trainings are pooled."""
        return self.members > 1


def origin(predictions: Predictions, labels: Mapping[str, str]) -> Origin:
    """Return what labels say of predictions, or else their metadata, or else the file's name."""
    about = predictions.metadata
    stem = Path(predictions.source).stem if predictions.source else "model"
    told = {name: labels.get(name) or about.get(name) for name in COLUMNS}
    # A name given by hand joins files, whatever configuration they say they have.
    setting = "" if labels.get("method") else str(about.get("setting", ""))
    return Origin(
        str(labels.get("method") or about.get("title") or about.get("method") or stem),
        setting,
        str(told["task"] or ""),
        str(told["criterion"] or ""),
        blur=_number(told["blur"], "blur", predictions.source),
        seed=_number(told["seed"], "seed", predictions.source),
        members=_number(told["members"], "members", predictions.source) or 1,
    )


def _number(value: object, name: str, source: str | None) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(str(value))
    except ValueError:
        raise InputError(
            f"says {name} = {value!r}, no whole number", file=source, hint="Mend it with --labels."
        ) from None


def read_labels(path: Path | None, files: Sequence[Path]) -> Labels:
    """Read the CSV of labels: {resolved file: {column: word}}, empty without one.

    Raises `InputError` for an unknown column, a file that is not among `files`, or no whole number where one is needed.
    """
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    if not rows or "file" not in rows[0]:
        raise InputError("needs a column 'file' and a row per predictions file", file=path)
    for column in rows[0]:
        if column not in COLUMNS:
            raise InputError(f"unknown column '{column}'", file=path, hint=nearest(str(column), COLUMNS))
    known = {file.resolve() for file in files}
    found: dict[Path, Mapping[str, str]] = {}
    for number, row in enumerate(rows, start=1):
        place = (path.parent / (row["file"] or "")).resolve()
        place = place / "predictions.parquet" if place.is_dir() else place
        if place not in known:
            raise InputError(
                f"'{row['file']}' is not among the files of the command",
                file=path,
                row=number,
                column="file",
                hint="Paths are relative to this CSV.",
            )
        for column in NUMBERS:
            if (word := row.get(column)) and not word.strip().isdigit():
                raise InputError(f"is '{word}', no whole number", file=path, row=number, column=column)
        found[place] = {column: (word or "").strip() for column, word in row.items()}
    return found
