"""Reading submissions of any origin: NPZ, Parquet, CSV, and the zip of the approximate-inference competition.

    NPZ       arrays probs, samples, draws (`submission.py`), and `meta` where there is any
    Parquet   columns prob_0 … or draw_0 …, and optionally `point`, 0 to N - 1 in order
    CSV       the same with a header; or bare numbers, as numpy.savetxt writes them
    zip       NAME_probs.csv or NAME_samples.csv of bare numbers; NAME is the target's, or that of the competition

The first bytes decide the format, not the name of the file; pickles are never loaded.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.core.untrusted.text import json_object
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.columns import MAX_VALUES
from retinabench.predictions.formats.bounded_parquet import read_table
from retinabench.predictions.formats.npz_format import DAMAGED_ARRAYS, METHODS, read_member

Arrays = dict[str, NDArray[Any]]
ARRAYS = ("probs", "samples", "draws", "meta")
COLUMN = re.compile(r"(prob|draw)_([0-9]{1,6})")
HINT = "Write an NPZ with probs (N, C) or draws (N, 1000)."


def read_arrays(path: Path, target: Target) -> tuple[Arrays, JsonObject]:
    """Return the arrays of a file by name, and its metadata.

    Raises:
        InputError: The file has none of the formats, or is damaged.
    """
    with _explained(path):
        head = _head(path)
        if head.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                if any(name.endswith(".npy") for name in archive.namelist()):
                    return _npz(path, archive)
                return _archive(path, archive, target), {}
        if head.startswith(b"PAR1"):
            return _columns(path, *_parquet(path)), {}
        return _text(path, path.read_bytes(), target), {}


def read_meta(path: Path) -> JsonObject:
    """Return the metadata of an NPZ file; of any other file, and without any, an empty dictionary."""
    with _explained(path):
        if not _head(path).startswith(b"PK"):
            return {}
        with zipfile.ZipFile(path) as archive:
            return _npz(path, archive, ["meta"])[1] if "meta.npy" in archive.namelist() else {}


def _head(path: Path) -> bytes:
    if path.exists() and not (path.is_file() or path.is_dir()):  # to open a pipe would wait for its writer
        raise InputError("is a pipe or a device, and no file", file=path)
    with check(path).open("rb") as handle:
        return handle.read(4)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the errors of opening a file into one line."""
    try:
        yield
    except InputError:
        raise
    except IsADirectoryError:
        raise InputError(
            "is a folder, not a submission", file=path, hint="Name submission.npz in it."
        ) from None
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except DAMAGED_ARRAYS:
        raise InputError("is not a whole archive", file=path, hint="Write or copy it again.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None


def _npz(path: Path, archive: zipfile.ZipFile, names: Sequence[str] = ARRAYS) -> tuple[Arrays, JsonObject]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    arrays = {name: read_member(path, archive, members[name], name) for name in names if name in members}
    for info in members.values():
        archive.open(info).close()  # is refused where the name in the directory is not that before the array
    if not arrays:
        raise InputError(f"holds {', '.join(sorted(members)[:5])}", file=path, hint=HINT)
    try:
        meta = json_object(str(arrays.pop("meta", "{}")))
    except ValueError:
        raise InputError("has unreadable metadata", file=path, column="meta") from None
    for name, values in arrays.items():
        if values.dtype.kind not in "fiu":
            raise InputError(f"is of type {values.dtype}, needed are numbers", file=path, column=name)
    return arrays, meta


def _archive(path: Path, archive: zipfile.ZipFile, target: Target) -> Arrays:
    """The one table of a competition's zip that belongs to the target."""
    kind = "probs" if target.likelihood == "categorical" else "samples"
    # The development phase named CIFAR-10 `cifar10`, the evaluation `cifar`.
    known = dict.fromkeys((target.name, target.name.removeprefix("kit-"), target.competition))
    names = [f"{name}_{kind}.csv" for name in known if name]
    files = (info for info in archive.infolist() if not info.filename.startswith("__MACOSX/"))
    found = [info for info in files if Path(info.filename).name in names]
    if len(found) != 1:
        inside = ", ".join(sorted(archive.namelist())[:5]) or "nothing"
        raise InputError(f"holds {inside}", file=path, hint=f"Wanted is {' or '.join(names)}.")
    if found[0].compress_type not in METHODS:
        hint = "Pack it again as an ordinary zip."
        raise InputError("is compressed in a way that is not read", file=path, hint=hint)
    if found[0].file_size > 64 * MAX_VALUES:
        raise InputError("unpacks to more than is scored at once", file=path)
    return _text(path, archive.read(found[0]), target)


def _parquet(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    try:
        table = read_table(path)
        columns = [
            column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            for column in (table[name].combine_chunks() for name in table.column_names)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowException) as error:
        problem = str(error).partition("\n")[0]
        raise InputError(f"cannot be read as columns of numbers: {problem}", file=path) from None
    return table.column_names, np.stack(columns, axis=1) if columns else np.empty((0, 0))


def _text(path: Path, content: bytes, target: Target) -> Arrays:
    """A table of numbers with a header of names, or without one."""
    if not content.strip() or b"\x00" in content[:4096] or content.startswith(b"\x80"):
        what = "is empty" if not content.strip() else "is no table, and no pickle is ever loaded"
        raise InputError(what, file=path, hint=HINT)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path, hint="Save it as 'CSV UTF-8'.") from None
    first = text.lstrip().splitlines()[0]
    delimiter = next((mark for mark in ",;\t" if mark in first), None)
    named = any(COLUMN.fullmatch(cell.strip().strip('"')) for cell in first.split(delimiter))
    values = _numbers(path, text, delimiter, header=named)
    if named:
        return _columns(path, [cell.strip().strip('"') for cell in first.split(delimiter)], values)
    if target.likelihood == "categorical":
        return {"probs": values}
    # The competition's own files stand as (draws, points) as well as (points, draws).
    return {"draws": values.T if len(values) >= 1000 > values.shape[1] else values}


def _numbers(path: Path, text: str, delimiter: str | None, *, header: bool) -> NDArray[np.float64]:
    try:
        return np.loadtxt(
            io.StringIO(text), delimiter=delimiter, skiprows=int(header), ndmin=2, comments=None
        )
    except ValueError as error:
        # "could not convert string 'x' to float64 at row 3, column 2.", "the number of columns changed from …"
        problem = str(error).partition(";")[0].partition("\n")[0].rstrip(".")
        place = re.search(r" at row (\d+)", problem)
        raise InputError(
            f"is no table of numbers: {problem[: place.start()] if place else problem}",
            file=path,
            row=int(place[1]) + 1 if place else None,
            hint="Columns prob_0 … or draw_0 …, or bare numbers as numpy.savetxt writes them.",
        ) from None


def _columns(path: Path, names: list[str], values: NDArray[np.float64]) -> Arrays:
    """Sort named columns into one array; check that `point` counts 0 to N - 1."""
    found: dict[str, dict[int, int]] = {"prob": {}, "draw": {}}
    for place, name in enumerate(names):
        if match := COLUMN.fullmatch(name):
            if int(match[2]) in found[match[1]]:
                raise InputError("stands twice", file=path, column=name)
            found[match[1]][int(match[2])] = place
        elif name == "point":
            order = np.flatnonzero(values[:, place] != np.arange(len(values)))
            if order.size:
                raise InputError(
                    f"is {values[order[0], place]:g} where point {order[0]} is due",
                    file=path,
                    row=int(order[0]) + 1,
                    column="point",
                    hint="Sort the rows by the test points' order in the task, 0 to N - 1.",
                )
    arrays = {}
    for kind, places in found.items():
        missing = next((k for k in range(len(places)) if k not in places), None)
        if missing is not None:
            raise InputError("is missing", file=path, column=f"{kind}_{missing}")
        if places:
            arrays[f"{kind}s"] = values[:, [places[k] for k in range(len(places))]]
    if not arrays:
        raise InputError(
            f"has the columns {', '.join(names[:6])}", file=path, hint="Wanted are prob_0 … or draw_0 …."
        )
    return arrays
