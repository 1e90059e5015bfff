"""Tables of labels, and the image that each row belongs to.

The rule for all data sets: an image is used if it has a label and a file. A label without a file stops the
preparation unless bad files are skipped; a file without a label is left out; both are listed.
"""

from __future__ import annotations

import contextlib
import csv
import io
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, csv_text, nearest, one_edit
from retinabench.core.files import write_bytes
from retinabench.data.archives import Files
from retinabench.data.dataset import SPLITS, Records
from retinabench.predictions.check import indistinct

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp")
SHOWN = 5


@dataclass
class Survey:
    """Labels and files that are not used, as (name, reason), and notes: what a reader finds besides the records.

    `other_kinds` are sentences on files that carry the name of a label and are of a kind that is not read.
    `skips` tells a reader that what is missing or bad is to be left out rather than to stop the preparation.
    """

    no_file: list[str] = field(default_factory=list)
    no_label: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    other_kinds: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skips: bool = False

    def lines(self) -> list[str]:
        reasons = dict.fromkeys(reason for _, reason in self.left_out)
        found = [
            ("label", " without a file, left out", self.no_file), ("file", " without a label, left out", self.no_label),
            *(("labelled image", f" left out: {why}", [n for n, reason in self.left_out if reason == why]) for why in reasons),
        ]  # fmt: skip
        counted = [f"{len(n):,} {what}{'s' * (len(n) > 1)}{rest} ({_few(n)})" for what, rest, n in found if n]
        return [*self.notes, *counted, *self.other_kinds]

    def check(self, out: Path, on_bad: str) -> None:
        """Raise `InputError` if a label has no file and `on_bad` is not 'skip'; the list is written next to `out`."""
        out = out.resolve()
        listing = out.with_name(f"{out.name}.left_out.csv")
        if self.no_file and on_bad != "skip":
            self.write(listing)
            raise missing_files(self.no_file, " ".join([f"All are listed in {listing}.", *self.other_kinds]))
        with contextlib.suppress(OSError):  # of an earlier, incomplete download
            listing.unlink()

    def write(self, file: Path) -> None:
        rows = [(name, "label without a file") for name in self.no_file]
        rows += [*((name, "file without a label") for name in self.no_label), *self.left_out]
        if rows:
            write_bytes(file, csv_text([("name", "reason"), *rows]).encode())


def missing_files(names: Sequence[str], hint: str = "") -> InputError:
    count = f"{len(names):,} labelled image{'s have' if len(names) > 1 else ' has'} no file: {_few(names)}"
    goes_on = "Is the download complete? Or go on without them: add --on-bad skip."
    return InputError(count, hint=f"{hint} {goes_on}".strip())


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def pair(records: Records, files: Files, survey: Survey | None, folders: NDArray[np.str_] | None = None) -> Records:
    """Find the file of each record; upper and lower case are not distinguished; `folders` (N,)."""
    images = [name for name in files.names() if name.lower().endswith(ENDINGS)]
    by_path, by_stem = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name in images:
        by_path[name.lower()].append(name)
        by_stem[stem(name)].append(name)
    hints = np.full(len(records), "") if folders is None else folders
    source, taken = [], np.zeros(len(records), bool)
    for row, (wanted, hint) in enumerate(zip(records.source.tolist(), hints.tolist(), strict=True)):
        folder = f"/{wanted.lower().rpartition('/')[0]}".rstrip("/")  # the folders that a label names
        found = by_path[wanted.lower()] or [
            name for name in by_stem[stem(wanted)] if f"/{name.lower()}".rpartition("/")[0].endswith(folder)
        ]
        if len(found) > 1 and folders is None:
            problem = f"'{wanted}' names {len(found)} files: {_few(found)}"
            raise InputError(problem, file=files.root, hint="Write the path below the folder into the image column.")
        distances = [(hint not in (parts := name.split("/")), len(parts), name) for name in found]
        source.append(min(distances)[2] if found else "")
        taken[row] = bool(found)
    if not taken.any():
        problem = f"none of the {len(records):,} labelled images has a file; the first is '{records.image_id[0]}'"
        plain = "Name the folder that holds the images, or their zip archives, with the labels."
        raise InputError(problem, file=files.root, hint=_other_kinds(records.source.tolist(), files) or plain)
    if len(set(source) - {""}) < taken.sum():
        twice = next(name for name in source if name and source.count(name) > 1)
        raise InputError("is named by two rows of the labels", file=files.where(twice))
    lost = records.image_id[~taken].tolist()
    other = _other_kinds(records.source[~taken].tolist(), files) if lost else ""
    labelled = {stem(wanted) for wanted in records.source.tolist()}
    if survey is not None:
        known = labelled | {stem(name) for name, _ in survey.left_out}
        survey.no_file += lost
        survey.other_kinds += [other] * bool(other)
        survey.no_label += [name for name in images if stem(name) not in known]
    elif lost:
        raise missing_files(lost, other)
    return replace(records, source=np.array(source)).take(np.flatnonzero(taken))


def _other_kinds(names: Sequence[str], files: Files) -> str:
    """Return a sentence on the files of other kinds that carry the names of `names`, empty if there are none."""
    wanted = {stem(name) for name in names} | {posixpath.splitext(stem(name))[0] for name in names}
    endings = [posixpath.splitext(name.lower()) for name in files.names()]
    found = [ending for root, ending in endings if root.rpartition("/")[2] in wanted and ending not in ENDINGS]
    kinds = sorted({ending for ending in found if ending not in ("", ".csv", ".txt", ".json", ".xml")})
    if not kinds:
        return ""
    return f"{len(found):,} of them may be {', '.join(kinds)} files, which are not read: convert them to PNG."


def stem(name: str) -> str:
    """Return the name of a file without folders and extension, in lower case, as labels write it."""
    base = name.rpartition("/")[2].lower()
    root, ending = posixpath.splitext(base)
    return root if ending in ENDINGS else base


def placed(records: Records, split: str | None) -> Records:
    if split is None:
        return records
    if split not in SPLITS:
        raise InputError(f"unknown split '{split}'", hint=nearest(split, SPLITS))
    return replace(records, split=np.full(len(records), split))


Row = tuple[int, dict[str, str]]  # its number from 1, and its cells without surrounding blanks


def read_table(files: Files, name: str, columns: Sequence[str], header: Sequence[str] = ()) -> list[Row]:
    """Read a CSV: comma, semicolon or tab; UTF-8 with or without a byte-order mark; without blank rows. With `header` it has none of its own, and blanks between its cells."""
    where = files.where(name)
    try:
        text = files.read(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (byte {error.start + 1})"
        raise InputError(problem, file=where, hint="Save it as CSV UTF-8.") from None
    first = text.partition("\n")[0]
    separator = " " if header else max(",;\t", key=first.count)
    table = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[Row] = []
    try:
        header = header or [cell.strip() for cell in next(table, [])]
        _check_header(header, columns, where)
        for number, cells in enumerate(table, start=1):
            if not any(cell.strip() for cell in cells):
                continue
            short = any(header[len(cells) :])  # a row may lack the cells of columns without a name
            if short or any(cell.strip() for cell in cells[len(header) :]):
                problem = f"has {len(cells)} cells under {len(header)} columns"
                raise InputError(problem, file=where, row=number, hint="Is the file cut short?" if short else None)
            padded = [*cells, *[""] * (len(header) - len(cells))]
            if zero := next((key for key, cell in zip(header, padded, strict=False) if "\0" in cell), None):
                raise InputError("holds a zero byte", file=where, row=number, column=zero, hint="Remove it.")
            rows.append((number, {key: cell.strip() for key, cell in zip(header, padded, strict=False)}))
    except csv.Error as error:
        raise InputError(f"is not valid CSV ({error})", file=where, row=len(rows) + 1) from None
    if not rows:
        raise InputError("holds no rows below its header", file=where)
    return rows


def _check_header(header: Sequence[str], columns: Sequence[str], where: str) -> None:
    if not any(header):
        raise InputError("is empty", file=where)
    problem = next((f"a control character in its header ({c[:40]!a})" for c in header if not c.isprintable()), "")
    half = (f"half a pair of quotation marks in its header ({c[:40]})" for c in header if c.count('"') % 2)
    if problem := problem or next(half, ""):
        raise InputError(f"holds {problem}", file=where, hint="Save it as CSV UTF-8.")
    for column in columns:
        if header.count(column) > 1:
            raise InputError("appears twice in the header", file=where, column=column)
        if column not in header:
            raise InputError("is missing", file=where, column=column, hint=nearest(column, filter(None, header)))


def grade_of(row: Row, column: str, where: str) -> int:
    """Return a grade 0 … 4; `2.0`, as spreadsheets write it, is 2."""
    number, cells = row
    whole = cells[column].removesuffix(".0")
    if whole not in {"0", "1", "2", "3", "4"}:
        raise InputError(f"is '{cells[column]}', not one of 0, 1, 2, 3, 4", file=where, row=number, column=column)
    return int(whole)


def word_of(row: Row, column: str, where: str, words: Sequence[str]) -> str:
    number, cells = row
    if cells[column] not in words:
        hint = nearest(cells[column], words)
        raise InputError(f"is '{cells[column]}'", file=where, row=number, column=column, hint=hint)
    return cells[column]


def ids_of(rows: Sequence[Row], column: str, where: str) -> list[str]:
    first: dict[str, int] = {}
    for number, cells in rows:
        if not cells[column]:
            raise InputError("is empty", file=where, row=number, column=column)
        if cells[column] in first:
            problem, hint = f"'{cells[column]}' is in row {first[cells[column]]} already", "Keep one row per image."
            raise InputError(problem, file=where, row=number, column=column, hint=hint)
        first[cells[column]] = number
    check_distinct(rows, column, where)
    return list(first)


def check_distinct(rows: Sequence[Row], column: str, where: str) -> None:
    """Refuse names that differ only by blanks, invisible characters or the Unicode form of a letter."""
    if (pair := indistinct(cells[column] for _, cells in rows)) is not None:
        number = next(number for number, cells in rows if cells[column] == pair[1])
        problem, hint = f"is {pair[1][:60]!a}, which looks like {pair[0][:60]!a}", "Write one name in one way."
        raise InputError(problem, file=where, row=number, column=column, hint=hint)


def refuse_typos(header: Iterable[str], columns: Sequence[str], where: str) -> None:
    """Refuse a column whose name is one letter away from an optional one that the table lacks."""
    names = list(header)
    for column in columns:
        for name in names if column not in names else ():
            if one_edit(name.lower(), column) or name.lower() == column:
                problem = f"is spelt almost like '{column}', which the table lacks"
                hint = f"Rename it, or say --column {column}=NAME."
                raise InputError(problem, file=where, column=name, hint=hint)
