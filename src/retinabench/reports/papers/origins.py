"""Where a predictions file comes from: its metadata, and a CSV of labels for files that have none.

The CSV has a column `file` (relative to the CSV) and any of `method`, `task`, `dataset`, `criterion`, `blur`, `seed` and
`members`. A label overrides the metadata; an empty cell leaves the value to the metadata:

    file,method,task,blur,seed
    ours-0.csv,Our network,country_shift,30,0
    ours-1.csv,Our network,country_shift,30,1

Files that differ by `seed` alone are the runs of a `method` (else the file's name); the same seed twice is refused, and without one every file is a run.
Each `task` and `dataset` has tables of its own. `criterion` is ``in_domain_auroc`` (the default; Tables 1 to 7 of Band et al. 2021) or
``balanced_joint_accuracy_area`` (8 to 11), `blur` that of Graham's preprocessing (default 30; Tables 12, 13), `members` more than 1 of an
ensemble.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from retinabench.core.errors import InputError, nearest
from retinabench.predictions.table import Predictions

COLUMNS = ("file", "method", "task", "dataset", "criterion", "blur", "seed", "members")
_INTEGERS = ("blur", "seed", "members")
STANDARD_BLUR = 30
"""Blur constant of both papers' preprocessing; files that state none belong to it."""
JOINT_CRITERION = "balanced_joint_accuracy_area"
TASK_TITLES = {
    "country_shift": "Country Shift",
    "severity_shift": "Severity Shift",
    "severity_shift_published": "Severity Shift as released",
    "severity_shift_mild": "Severity Shift, mild",
    "severity_shift_mild_published": "Severity Shift, mild, as released",
    "in_domain": "one population",
    "hold_out_2019": "hold-out of 2019",
    "": "task not stated",
}
CRITERION_TITLES = {
    "": "",
    "in_domain_auroc": "tuned on in-domain validation AUROC",
    JOINT_CRITERION: "tuned on the joint validation metric",
}
_CRITERION_SLUGS = {"in_domain_auroc": "tuned-in-domain", JOINT_CRITERION: "tuned-jointly"}
Labels = Mapping[Path, Mapping[str, str]]


@dataclass(frozen=True)
class Origin:
    """The run or ensemble behind a predictions file.

    Attributes:
        method: Title of the method.
        setting: Hash shared by runs that differ by their seed alone, "" if unknown.
        task: Name of the task, "" if unknown.
        dataset: Name of the data set, "" if unknown.
        criterion: The validation criterion that the configuration was tuned on, "" if unknown.
        blur: Blur constant of Graham's preprocessing, None if unknown.
        seed: Seed of the run, None if unknown.
        members: Number of trainings that are pooled.
        member_seeds: Seeds of the pooled trainings, where the file states them.
    """

    method: str
    setting: str
    task: str = ""
    dataset: str = ""
    criterion: str = ""
    blur: int | None = None
    seed: int | None = None
    members: int = 1
    member_seeds: tuple[int, ...] = ()

    @property
    def base(self) -> str:
        """The title of the method of a single member."""
        return re.sub(r"^ensemble of \d+ |\s+ensemble( of \d+)?$", "", self.method) or self.method

    @property
    def ensemble(self) -> bool:
        """Whether several trainings are pooled."""
        return self.members > 1


def origin(predictions: Predictions, labels: Mapping[str, str]) -> Origin:
    """Return the origin of predictions, from labels, else from their metadata, else from the name of their file."""
    metadata = predictions.metadata
    stem = Path(predictions.source).stem if predictions.source else "model"
    stated = {name: labels.get(name) or metadata.get(name) for name in COLUMNS}
    seeds = metadata.get("member_seeds")

    def integer(name: str) -> int | None:
        return _integer(stated[name], name, predictions.source)

    return Origin(
        method=str(labels.get("method") or metadata.get("title") or metadata.get("method") or stem),
        # Files that a label gives the same name are runs of one method, whatever their configurations.
        setting="" if labels.get("method") else str(metadata.get("setting", "")),
        task=str(stated["task"] or ""),
        dataset=str(stated["dataset"] or metadata.get("data") or ""),
        criterion=str(stated["criterion"] or ""),
        blur=integer("blur"),
        seed=integer("seed"),
        members=integer("members") or 1,
        member_seeds=tuple(seeds) if isinstance(seeds, list) else (),
    )


def _integer(value: object, name: str, source: str | None) -> int | None:
    if value is None or value == "":
        return None
    try:
        return int(str(value))
    except ValueError:
        raise InputError(
            f"states {name} = {value!r}, which is not a whole number",
            file=source,
            hint="Correct it with --labels.",
        ) from None


def read_labels(path: Path | None, files: Sequence[Path]) -> Labels:
    """Read the CSV of labels."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    if not rows or "file" not in rows[0]:
        raise InputError("needs a column 'file' and one row per predictions file", file=path)
    for column in rows[0]:
        if column not in COLUMNS:
            raise InputError(f"unknown column '{column}'", file=path, hint=nearest(str(column), COLUMNS))
    known = {file.resolve() for file in files}
    labels: dict[Path, Mapping[str, str]] = {}
    for number, row in enumerate(rows, start=1):
        file = (path.parent / (row["file"] or "")).resolve()
        file = file / "predictions.parquet" if file.is_dir() else file
        if file not in known:
            raise InputError(
                f"'{row['file']}' is not among the files of the command",
                file=path,
                row=number,
                column="file",
                hint="Paths are relative to this CSV.",
            )
        for column in _INTEGERS:
            if (label := row.get(column)) and not label.strip().isdigit():
                raise InputError(
                    f"is '{label}', which is not a whole number", file=path, row=number, column=column
                )
        labels[file] = {column: (label or "").strip() for column, label in row.items()}
    return labels


def task_title(task: str) -> str:
    """Return the title of a task; an unknown one keeps its name."""
    return TASK_TITLES.get(task, task)


def criterion_title(criterion: str) -> str:
    """Return the title of a tuning criterion, "" where a configuration was not tuned."""
    return CRITERION_TITLES.get(criterion, f"tuned on {criterion}")


def slug(*parts: str) -> str:
    """Return task, data set and criterion as part of a file name, such as `country-shift-tuned-in-domain`."""
    words = (_CRITERION_SLUGS.get(part, part) for part in parts)
    return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words if word)
