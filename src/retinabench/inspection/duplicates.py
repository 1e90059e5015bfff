"""Duplicates among images, by their files and their pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.data.prepared import Prepared
from retinabench.inspection import alignment
from retinabench.inspection.alignment import FREQUENCIES, RADII, SMALLEST, Alignment, Spectrum, align, detail_of
from retinabench.predictions.io import read_table

NAME = "files.parquet"


@dataclass(frozen=True)
class BadFile:
    """An image of the data set that was not prepared, and why."""

    image_id: str
    source: str
    reason: str


@dataclass(frozen=True, eq=False)
class OriginalFiles:
    """The original file of each of N records."""

    sha256: NDArray[np.str_]  # digest, (N,), "" where unknown
    width: NDArray[np.int64]  # width in pixels, (N,), 0 where unknown
    height: NDArray[np.int64]  # height in pixels, (N,), 0 where unknown
    bytes: NDArray[np.int64]  # size in bytes, (N,), 0 where unknown
    bad: tuple[BadFile, ...]  # the images of the data set that were not prepared


def original_files(data: Prepared) -> OriginalFiles | None:
    path = data.folder / NAME
    if not path.is_file():
        return None
    try:
        table = read_table(check(path))
        columns = {name: table[name].to_pylist() for name in ("image_id", "source", "status", "reason")}
        known = {name: table[name].to_pylist() for name in ("sha256", "width", "height", "bytes")}
    except (OSError, KeyError, pa.ArrowException) as error:
        raise InputError(f"is damaged ({error})", file=path, hint="Delete the folder and prepare it again.") from None
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


Floats = NDArray[np.float32]
MARGIN = 0.15  # share of the side: leaves the square inside the field of view
CHUNK = 32


@dataclass(frozen=True, eq=False)
class Pixels:
    """Statistics of N images."""

    brightness: Floats  # mean grey value inside the field of view, (N,), 0 to 255
    sharpness: Floats  # mean absolute Laplacian there per unit of brightness, (N,); low where an image is blurred
    digest: NDArray[np.bytes_]  # SHA-256 of all pixels, (N,)
    spectra: Spectrum  # of the fine detail, (N, RADII, FREQUENCIES)
    whole: bool  # whether the field of view fills the images


def read_pixels(data: Prepared, progress: Progress = QUIET) -> Pixels:
    """Read every image of a prepared folder once, in the order of the shards, and return its statistics."""
    parts, whole = [], data.settings.preprocess == "graham"
    spectra = np.empty((len(data.records), RADII, FREQUENCIES), np.complex64)
    with progress.track("Reading images", len(data.records), unit="images") as advance:
        for start in range(0, len(data.records), CHUNK):
            images = data.images(np.arange(start, min(start + CHUNK, len(data.records))))
            parts.append(_statistics(images))
            spectra[start : start + CHUNK] = [alignment.spectrum(detail_of(image, whole=whole)) for image in images]
            data.release()
            advance(len(images))
    brightness, sharpness, digest = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Pixels(brightness, sharpness, digest, spectra, whole)


def _statistics(images: NDArray[np.uint8]) -> tuple[Floats, Floats, NDArray[np.bytes_]]:
    inside = np.stack([np.asarray(_inside(image), np.float32) for image in images])
    brightness = inside.mean(axis=(1, 2))
    laplacian = (
        inside[:, :-2, 1:-1] + inside[:, 2:, 1:-1] + inside[:, 1:-1, :-2] + inside[:, 1:-1, 2:]
        - 4 * inside[:, 1:-1, 1:-1]
    )  # fmt: skip
    sharpness = np.abs(laplacian).mean(axis=(1, 2)) / np.maximum(brightness, 1)
    digest = np.array([hashlib.sha256(image).digest() for image in images], "S32")
    return brightness, sharpness, digest


def _inside(image: NDArray[np.uint8]) -> Image.Image:
    side = len(image)
    margin = round(MARGIN * side)
    inside = np.ascontiguousarray(image[margin : side - margin, margin : side - margin])
    return Image.fromarray(inside).convert("L").reduce(max(side // 128, 1))


Pairs = NDArray[np.intp]
COMPARED = 300  # images of which every pair is looked at; of more, the likely pairs
LIKELY = 0.15  # least cosine of magnitudes of a likely pair
NEAREST = 3  # neighbours of each image that are looked at whatever their cosine
ROTATED = 0.38  # least correlation of spectra at the best rotation
CORRELATED, EVENLY, BLURRED, REST = 0.6, 0.48, 0.9, 0.75
"""Least correlation of aligned detail, least lower quartile of it over blocks, least correlation once blurred, and most share of
what is missing to 1 that the blur leaves, of a copy. Copies of IDRiD, changed in fifteen ways, have 0.62, 0.50, 0.90 and 0.74
(or 0.98 once blurred); other pairs reach 0.59 and 0.40, and with the same dirt on both 0.97, 0.96 and 0.97 (benchmarks/README.md)."""
ALIKE = 0.98  # a correlation once blurred that dirt alone does not reach

CELLS = 2**21  # cosines that are held at a time
PAIRS = 1024  # of spectra that are compared at a time
LEAST = "same retina"
STRENGTH = {"equal bytes": 3, "equal pixels": 2, LEAST: 1}


@dataclass(frozen=True)
class CopyPair:
    """Two images that show the same, and the evidence."""

    rows: tuple[int, int]  # rows of the records
    kind: str  # A key of `STRENGTH`
    alignment: Alignment | None = None  # how the second image lies on the first; None where files or pixels are equal

    @property
    def correlation(self) -> float:
        return 1.0 if self.alignment is None else self.alignment.correlation


@dataclass(frozen=True)
class CopyGroup:
    """Copies of one image."""

    rows: tuple[int, ...]  # rows of the records
    kind: str  # A key of `STRENGTH`
    pairs: tuple[CopyPair, ...]  # the pairs that join them
    splits: tuple[str, ...]  # the split of each row
    classes: tuple[int, ...]  # the grade or label of each row

    @property
    def correlation(self) -> float:
        """Correlation of their fine detail, the smallest of the pairs."""
        return min(pair.correlation for pair in self.pairs)

    def facts(self, row: int) -> tuple[str, int]:
        at = self.rows.index(row)
        return self.splits[at], self.classes[at]

    @property
    def crosses(self) -> bool:
        """Whether copies are in different splits, so that test images were trained on."""
        return len(set(self.splits)) > 1

    @property
    def conflicts(self) -> bool:
        """Whether copies carry different grades, or labels: one of them is wrong."""
        return len(set(self.classes)) > 1


def equal_pairs(key: NDArray[np.generic]) -> Pairs:
    """Return (P, 2) rows: each row whose key (N,) was seen before, with the first row that has it; "" is no key."""
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    repeats = np.flatnonzero((first[which] != np.arange(len(key))) & (key != key.dtype.type()))
    return np.stack([first[which[repeats]], repeats], axis=1)


def likely_pairs(unit: Floats, least: float = LIKELY, nearest: int = NEAREST) -> Pairs:
    """Return (P, 2) pairs of rows i < j whose unit vectors (N, D) have a cosine of at least `least`, or are the nearest.

    Every pair is compared, N² D multiplications in blocks of a matrix product, without an N x N array.
    """
    size, found = len(unit), [np.empty((0, 2), np.intp)]
    block = max(1, CELLS // max(size, 1))
    for start in range(0, size, block):
        cosines = unit[start : start + block] @ unit.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -2
        near = cosines >= least
        if 0 < nearest < size:
            near[rows[:, None], np.argpartition(-cosines, nearest - 1, axis=1)[:, :nearest]] = True
            near[rows, start + rows] = False
        elif nearest:
            near = cosines > -2
        found.append(np.sort(np.argwhere(near) + np.array([start, 0]), axis=1))
    return np.unique(np.concatenate(found), axis=0)


def rotated_pairs(spectra: Spectrum, pairs: Pairs) -> Iterator[tuple[int, int, bool, float]]:
    """Yield the pairs (P, 2) whose spectra correlate at some rotation: rows, whether mirrored, and degrees."""
    for start in range(0, len(pairs), PAIRS):
        some = pairs[start : start + PAIRS]
        at, flip, degrees = alignment.best_rotation(spectra[some[:, 0]], spectra[some[:, 1]])
        for k in np.flatnonzero(at >= ROTATED):
            yield int(some[k, 0]), int(some[k, 1]), bool(flip[k]), float(degrees[k])


def duplicate_groups(
    data: Prepared,
    split: NDArray[np.str_],
    classes: NDArray[np.int8],
    digests: NDArray[np.str_] | None,
    pixels: Pixels | None,
    progress: Progress = QUIET,
) -> list[CopyGroup]:
    """Return the groups of copies: those across splits first, then those in conflict, then by their first row; `split`, `classes`, `digests` (N,)."""
    pairs = list(_pairs(data, digests, pixels, progress))
    if not pairs:
        return []
    first, second = (np.array([pair.rows[k] for pair in pairs]) for k in (0, 1))
    size = len(data.records)
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(size, size))
    label = connected_components(graph, directed=False)[1]
    # Only the rows of pairs: a component of one row is no group.
    groups = [
        _group(split, classes, np.flatnonzero(label == one), [pairs[k] for k in np.flatnonzero(label[first] == one)])
        for one in np.unique(label[first])
    ]
    return sorted(groups, key=lambda group: (not group.crosses, not group.conflicts, group.rows))


def _pairs(
    data: Prepared, digests: NDArray[np.str_] | None, pixels: Pixels | None, progress: Progress
) -> Iterator[CopyPair]:
    if digests is not None:
        yield from (CopyPair((int(i), int(j)), "equal bytes") for i, j in equal_pairs(digests))
    if pixels is not None:
        equal = equal_pairs(pixels.digest)
        yield from (CopyPair((int(i), int(j)), "equal pixels") for i, j in equal)
        # Only the first of equal images is compared: a thousand black frames would make half a million pairs.
        distinct = np.setdiff1d(np.arange(len(pixels.digest)), equal[:, 1])
        if data.size >= SMALLEST:
            yield from _same_retinas(data, pixels, distinct, progress)


def _same_retinas(data: Prepared, pixels: Pixels, rows: NDArray[np.intp], progress: Progress) -> Iterator[CopyPair]:
    """Yield the pairs of the given rows whose fine detail, aligned, correlates everywhere."""
    if len(rows) <= COMPARED:
        likely: Pairs = np.stack(np.triu_indices(len(rows), 1), axis=1)
    else:
        likely = likely_pairs(alignment.magnitudes(pixels.spectra[rows]))
    rotated = list(rotated_pairs(pixels.spectra, rows[likely]))

    @lru_cache(maxsize=512)
    def detail(row: int) -> Floats:
        [image] = data.images([row])
        data.release()
        return detail_of(image, whole=pixels.whole)

    with progress.track("Aligning likely copies", len(rotated), unit="pairs") as advance:
        for i, j, mirrored, degrees in rotated:
            found = align(detail(i), detail(j), mirrored, degrees)
            if one_retina(found):
                yield CopyPair((i, j), LEAST, found)
            advance(1)


def one_retina(how: Alignment) -> bool:
    """Whether aligned images show one retina, and not one lens with the same dirt."""
    clearer = 1 - how.blurred <= REST * (1 - how.correlation) or how.blurred >= ALIKE
    return clearer and how.blurred >= BLURRED and how.correlation >= CORRELATED and how.quarter >= EVENLY


def _group(
    split: NDArray[np.str_], classes: NDArray[np.int8], rows: NDArray[np.intp], pairs: list[CopyPair]
) -> CopyGroup:
    """Return a group; its kind is the strongest that joins all of its rows, else "same retina"."""
    joined = (kind for kind in STRENGTH if sum(pair.kind == kind for pair in pairs) >= len(rows) - 1)
    # Of several pieces of evidence for the same two rows, the strongest stays.
    strongest = {pair.rows: pair for pair in sorted(pairs, key=lambda pair: STRENGTH[pair.kind])}
    ordered = tuple(strongest[at] for at in sorted(strongest))
    known = (tuple(values.tolist()) for values in (split[rows], classes[rows]))
    return CopyGroup(tuple(rows.tolist()), next(joined, LEAST), ordered, *known)
