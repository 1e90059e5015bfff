"""A task: a prepared folder, divided into the rows that train, validate and test (`splits`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.data.dataset import Records, Rows, Splits, join, make_records
from retinabench.data.prepared import Prepared, open_data
from retinabench.data.registry import DATASETS, TASKS
from retinabench.data.splits import COUNTRY_SHIFT, Division, fold_splits

SPLITS = ("train", "validation", "shifted_validation", "test", "shifted_test")


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of some splits of a task, as `rb.evaluate` takes them; `rows`, `domain`, `split` (N,)."""

    data: Prepared
    rows: Rows
    domain: NDArray[np.str_]
    split: NDArray[np.str_]
    batch_size: int = 64

    @property
    def image_id(self) -> NDArray[np.str_]:
        return self.data.records.image_id[self.rows]

    @property
    def patient_id(self) -> NDArray[np.str_]:
        return self.data.records.patient_id[self.rows]

    @property
    def label(self) -> NDArray[np.int8]:
        """(N,) 1 = referable, by the cut of the task."""
        return self.data.label[self.rows]

    @property
    def grade(self) -> NDArray[np.int8] | None:
        """(N,) grades 0 … 4, or None if only labels are known."""
        return self.data.records.grade[self.rows] if self.data.graded else None

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(self.rows), self.batch_size):
            yield self.data.images(self.rows[start : start + self.batch_size])


@dataclass(frozen=True, eq=False)
class Task:
    """A prepared data set, divided; ``task["test"]`` or ``task["test", "shifted_test"]`` gives the `Part` that `rb.evaluate` takes."""

    name: str
    data: Prepared
    splits: Splits
    notes: tuple[str, ...]

    @property
    def records(self) -> Records:
        return self.data.records

    @property
    def image_id(self) -> NDArray[np.str_]:
        return self.records.image_id

    @property
    def patient_id(self) -> NDArray[np.str_]:
        return self.records.patient_id

    def __len__(self) -> int:
        return len(self.records)

    def in_fold(self, folds: int, repeat: int, fold: int) -> Task:
        """Return the task with its images divided anew, so that one fold of the patients tests (`splits.fold_splits`)."""
        found = fold_splits(self.records, self.splits, folds, repeat, fold)
        return replace(self, splits={name: rows for name, rows in found.items() if rows.size}, notes=())

    def __getitem__(self, names: str | tuple[str, ...]) -> Part:
        """Return one split or several, or raise `InputError` for one that the task does not have."""
        names = (names,) if isinstance(names, str) else names
        for name in names:
            if name not in self.splits:
                raise InputError(f"the task '{self.name}' has no split '{name}'", hint=nearest(name, self.splits))
        # The task's split, not the data set's own: a held-out validation split comes from training rows.
        of_row = np.repeat(names, [len(self.splits[name]) for name in names])
        return Part(
            data=self.data,
            rows=np.concatenate([self.splits[name] for name in names]),
            domain=np.where(np.char.startswith(of_row, "shifted"), "shifted", "in_domain"),
            split=np.char.replace(of_row, "shifted_", ""),
        )


def load_task(folder: str | Path, name: str = "country_shift", shifted: str | Path | None = None) -> Task:
    """Open a prepared folder, merge a second one as the shifted domain, and divide for a task.

    Args:
        folder: The prepared folder.
        name: A name of `registry.TASKS`.
        shifted: A prepared folder of the shifted domain, for tasks that need one.

    Returns:
        The data and the rows of each split.

    Raises:
        InputError: A folder or the name is unknown, a needed split is empty, or the task has no use for `shifted`.

    Examples:
        >>> import retinabench as rb
        >>> try:
        ...     rb.load_task("no/such/folder", "in_domain")
        ... except ValueError as error:
        ...     print(str(error).partition(":")[0])
        no/such/folder
    """
    division = TASKS.find(name)
    return divide(replace(open_data(folder, shifted), referable_from=division.referable_from), name, shifted)


def divide(data: Prepared, name: str, shifted: str | Path | None = None) -> Task:
    division, folder = TASKS.find(name), data.folder
    if division.by_grade and not data.graded:
        raise InputError(f"holds labels without grades, and '{name}' divides by grade", file=folder)
    splits = {split: rows for split, rows in division.divide(data.records).items() if rows.size}
    for needed in ("train", "validation", "test"):
        if needed not in splits:
            raise InputError(f"the task '{name}' finds no images for its split '{needed}'", file=folder)
    for split in ("train", "validation"):
        if len(np.unique(data.label[splits[split]])) < 2:
            raise InputError(f"the split '{split}' of '{name}' holds one class only", file=folder)
    used = np.concatenate(list(splits.values()))
    if shifted is not None and not (data.records.domain[used] == "shifted").any():
        hint = "Leave --shifted out, or use the task 'country_shift'; it takes splits 'validation' and 'test'."
        raise InputError(f"the task '{name}' uses none of its images", file=shifted, hint=hint)
    return Task(name, data, splits, tuple(_notes(division, data, splits)))


def _notes(division: Division, data: Prepared, splits: Splits) -> Iterator[str]:
    """Yield notes on images left out or held out, patients in several splits, and counts other than published."""
    records = data.records
    if data.doubt:
        yield data.doubt
    if division.repairs is not None:
        for split, rows in division.repairs(records).items():
            if fewer := len(rows) - len(splits.get(split, ())):
                yield (
                    f"{fewer:,} of {len(rows):,} images of the split '{split}' are left out, since their patients are also "
                    "in 'train'; the task ending in _published keeps them"
                )
    for split, rows in splits.items():
        own = records.split[rows] == "train"
        if split != "train" and own.any():
            yield f"{own.sum():,} images of the split '{split}' come from the data set's own training split"
    train = np.unique(records.patient_id[splits["train"]])
    for split, rows in splits.items():
        shared = np.intersect1d(train, records.patient_id[rows]).size if split != "train" else 0
        if shared:
            who = "patients of the split '{}' are" if shared > 1 else "patient of the split '{}' is"
            yield f"{shared:,} {who.format(split)} in 'train' as well"
    if unused := int(((records.domain == "shifted") & (records.split == "train")).sum()):
        yield (
            f"{unused:,} shifted images are the training split of their data set and not used; `prepare --split "
            "test` makes all of them test images"
        )
    if division.published is not None and data.name.partition("+")[0] == "eyepacs":
        for split, number in zip(SPLITS, division.published, strict=True):
            found = len(splits.get(split, ()))
            whole = data.name == "eyepacs+aptos" or not (split.startswith("shifted") and "+" in data.name)
            if whole and found != number:
                yield f"the split '{split}' holds {found:,} images; the complete data set gives {number:,}"


def expected_sizes(name: str, dataset: str, shifted: str | None = None) -> dict[str, int]:
    """Return the sizes of a task's splits by the published ones or the counts of data sets that need not be there, where every image counts as a patient."""
    division = TASKS.find(name)
    published_on = ("eyepacs", "aptos" if division is COUNTRY_SHIFT else None)
    if division.published is not None and (dataset, shifted) == published_on:
        return dict(zip(SPLITS, division.published, strict=True))
    parts = [_expected_records(dataset, "in_domain")]
    parts += [_expected_records(shifted, "shifted")] if shifted is not None else []
    return {split: len(rows) for split, rows in division.divide(join(parts)).items() if len(rows)}


def _expected_records(dataset: str, domain: str) -> Records:
    if not (counts := DATASETS.find(dataset).counts):
        problem = f"the number of images of the data set '{dataset}' is not known before it is prepared"
        raise InputError(problem, hint="Prepare it first.")
    split = np.repeat(list(counts), [sum(by_grade) for by_grade in counts.values()])
    grade = np.concatenate([
        np.repeat(np.arange(5), by_grade) if len(by_grade) == 5 else np.arange(by_grade[0]) % 5
        for by_grade in counts.values()
    ])  # fmt: skip
    ids = (f"{dataset}-{number}" for number in range(len(split)))
    return make_records(ids, grade, split=split, domain=domain)
