"""Copies among the images of a data set: equal files, equal pixels, and nearly equal images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from retinabench.data.prepared import Prepared
from retinabench.inspection.pixels import Floats, Pixels, detail

Pairs = NDArray[np.intp]
SIMILAR = 0.9
"""Cosine of two signatures. IDRiD at 64 to 512 px: copies 1; two exposures of one eye 0.92 to 0.95; other pairs below 0.87."""
SAME_DETAIL = 0.6
"""Correlation of fine detail that confirms a copy: unrelated images stay below it, whatever their camera."""
BLOCK = 512
STRENGTH = {"equal bytes": 3, "equal pixels": 2, "nearly equal": 1}


@dataclass(frozen=True)
class Group:
    """Copies of one image.

    Attributes:
        rows: Rows of the records.
        kind: A key of `STRENGTH`.
        correlation: Correlation of their fine detail, the smallest of the pairs found.
        splits: The split of each row.
        classes: The grade or label of each row.
    """

    rows: tuple[int, ...]
    kind: str
    correlation: float
    splits: tuple[str, ...]
    classes: tuple[int, ...]

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
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    start = np.maximum.accumulate(np.where(np.append(False, same), 0, np.arange(len(key))))
    repeats = np.flatnonzero(np.append(False, same) & (key[order] != key.dtype.type()))
    return np.stack([order[start[repeats]], order[repeats]], axis=1)


def similar_pairs(signatures: Floats, least: float = SIMILAR) -> Pairs:
    """Return all (P, 2) pairs of rows i < j whose unit signatures (N, D) have a cosine of at least `least`.

    Every pair is compared, N² D multiplications in blocks of a matrix product, without an N x N array.
    """
    found = []
    for start in range(0, len(signatures), BLOCK):
        cosines = signatures[start : start + BLOCK] @ signatures[start:].T
        near = np.argwhere(cosines >= least)
        found.append(near[near[:, 0] < near[:, 1]] + start)
    return np.concatenate(found) if found else np.empty((0, 2), np.intp)


def duplicate_groups(
    data: Prepared,
    split: NDArray[np.str_],
    classes: NDArray[np.int8],
    digests: NDArray[np.str_] | None,
    pixels: Pixels | None,
) -> list[Group]:
    """Return the groups of copies: those across splits first, then those in conflict, then by their first row.

    Args:
        data: The prepared data set of N images.
        split: Name of each row's split, (N,).
        classes: Grade or label of each row, (N,).
        digests: SHA-256 of the original files, (N,); None where unknown.
        pixels: Statistics of the images; without them only equal files are found.

    Returns:
        The groups, each of two rows or more.
    """
    edges = list(_edges(data, digests, pixels))
    if not edges:
        return []
    first, second, kinds, correlations = (np.array(column) for column in zip(*edges, strict=True))
    size = len(data.records)
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(size, size))
    label = connected_components(graph, directed=False)[1]
    # Only the rows of edges: a component of one row is no group.
    groups = [
        _group(split, classes, np.flatnonzero(label == one), kinds[mine], correlations[mine])
        for one in np.unique(label[first])
        for mine in [label[first] == one]
    ]
    return sorted(groups, key=lambda group: (not group.crosses, not group.conflicts, group.rows))


def _edges(
    data: Prepared, digests: NDArray[np.str_] | None, pixels: Pixels | None
) -> Iterator[tuple[int, int, str, float]]:
    if digests is not None:
        yield from ((int(i), int(j), "equal bytes", 1.0) for i, j in equal_pairs(digests))
    if pixels is not None:
        equal = equal_pairs(pixels.digest)
        yield from ((int(i), int(j), "equal pixels", 1.0) for i, j in equal)
        # Only the first of equal images is compared: a thousand black frames would make half a million pairs.
        distinct = np.setdiff1d(np.arange(len(pixels.digest)), equal[:, 1])
        for i, j in distinct[similar_pairs(pixels.standardised()[distinct])]:
            a, b = data.images([i, j])
            if (correlation := float(detail(a) @ detail(b))) >= SAME_DETAIL:
                yield int(i), int(j), "nearly equal", correlation


def _group(
    split: NDArray[np.str_],
    classes: NDArray[np.int8],
    rows: NDArray[np.intp],
    kinds: NDArray[np.str_],
    correlations: NDArray[np.float64],
) -> Group:
    """Return a group; its kind is the strongest that joins all of its rows, else "nearly equal"."""
    joined = {kind: int((kinds == kind).sum()) >= len(rows) - 1 for kind in STRENGTH}
    kind = next((kind for kind in STRENGTH if joined[kind]), "nearly equal")
    return Group(
        rows=tuple(int(row) for row in rows),
        kind=kind,
        correlation=1.0 if STRENGTH[kind] > 1 else float(correlations.min()),
        splits=tuple(str(name) for name in split[rows]),
        classes=tuple(int(one) for one in classes[rows]),
    )
