"""The original files of a prepared folder, from its `files.parquet`: digests, sizes, and files that were not prepared.

The table has one row per image of the data set, including images that could not be prepared. Folders made by hand, or by
earlier versions, have no such table; nothing is then known of the original files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.files import check
from retinabench.data.prepared.folder import Prepared
from retinabench.predictions.formats.bounded_parquet import read_table

NAME = "files.parquet"


@dataclass(frozen=True)
class BadFile:
    """An image of the data set that was not prepared, and why."""

    image_id: str
    source: str
    reason: str


@dataclass(frozen=True, eq=False)
class OriginalFiles:
    """The original file of each of N records.

    Attributes:
        sha256: Digest, (N,), "" where unknown.
        width: Width in pixels, (N,), 0 where unknown.
        height: Height in pixels, (N,), 0 where unknown.
        bytes: Size in bytes, (N,), 0 where unknown.
        bad: The images of the data set that were not prepared.
    """

    sha256: NDArray[np.str_]
    width: NDArray[np.int64]
    height: NDArray[np.int64]
    bytes: NDArray[np.int64]
    bad: tuple[BadFile, ...]


def original_files(data: Prepared) -> OriginalFiles | None:
    """Read the table of original files."""
    path = data.folder / NAME
    if not path.is_file():
        return None
    try:
        table = read_table(check(path))
        columns = {name: table[name].to_pylist() for name in ("image_id", "source", "status", "reason")}
        known = {name: table[name].to_pylist() for name in ("sha256", "width", "height", "bytes")}
    except (OSError, KeyError, pa.ArrowException) as error:
        raise InputError(
            f"is damaged ({error})", file=path, hint="Delete the folder and prepare it again."
        ) from None
    rows = {image: row for row, image in enumerate(columns["image_id"])}
    order = [rows.get(image, -1) for image in data.records.image_id.tolist()]
    prepared = set(data.records.image_id.tolist())
    bad = tuple(
        BadFile(str(image), str(source or ""), str(reason or status or "unknown"))
        for image, source, status, reason in zip(*columns.values(), strict=True)
        if image not in prepared
    )
    numbers = {
        name: np.array([known[name][row] or 0 if row >= 0 else 0 for row in order], np.int64)
        for name in ("width", "height", "bytes")
    }
    digests = np.array([known["sha256"][row] or "" if row >= 0 else "" for row in order], np.str_)
    return OriginalFiles(sha256=digests, **numbers, bad=bad)
