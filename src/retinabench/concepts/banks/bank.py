"""The question bank: samples by concepts with the truth, possibly far larger than memory.

A question is a pair (sample, concept); a cell is (concept, truth). The bank counts its cells once, in chunks of rows, and finds
the k-th sample of a cell through these counts, so that drawing at random without replacement needs no list of the samples:
the truth may be a memory map of millions of regions, and asking copies none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.check import Check

CHUNK = 4096  # rows: counting reads so many at once, finding a sample scans one chunk
UNKNOWN = -1


class Bank:
    """Samples by concepts with their truth.

    Attributes:
        samples: Number of samples n.
        patient: (n,) number of the patient of each sample; None where each sample is a patient of its own.
        cells: (c, 2) int64, samples of each concept with truth 0 and 1.
    """

    def __init__(
        self,
        sample_id: ArrayLike | None,
        concepts: Sequence[str],
        truth: NDArray[np.int8],
        source: str | None = None,
        patient: ArrayLike | None = None,
    ) -> None:
        check = Check(source)
        self.source = source
        self.concepts = tuple(str(name) for name in concepts)
        if not self.concepts or len(set(self.concepts)) < len(self.concepts):
            raise InputError("needs concepts, each once", file=source, hint="Name every column apart.")
        if truth.ndim != 2 or truth.shape[1] != len(self.concepts) or truth.dtype != np.int8:
            needed = f"(n, {len(self.concepts)}) int8"
            raise InputError(f"the truth has shape {truth.shape} and type {truth.dtype}, needed is {needed}")
        self.truth, self.samples = truth, len(truth)
        self._id: NDArray[np.str_] | None = None
        if sample_id is not None:
            self._id = check.text("image_id", check.length("image_id", sample_id, self.samples))
            check.unique("image_id", self._id)
            check.distinct("image_id", self._id)
        self.patient: NDArray[np.intp] | None = None
        if patient is not None:
            names, codes = np.unique(check.length("patient_id", patient, self.samples), return_inverse=True)
            self.patient = codes if len(names) < self.samples else None
        # (chunks + 1, c, 2): how many samples of each cell lie before each chunk.
        self._before = np.zeros((-(-self.samples // CHUNK) + 1, len(self.concepts), 2), np.int64)
        for k in range(len(self._before) - 1):
            rows = np.asarray(truth[k * CHUNK : (k + 1) * CHUNK])
            if rows.min() < UNKNOWN or rows.max() > 1:
                row, column = np.argwhere((rows < UNKNOWN) | (rows > 1))[0]
                problem, hint = (
                    f"is {rows[row, column]}, not 0 or 1",
                    "Unknown truth is -1 (empty in a file).",
                )
                raise check.fail(self.concepts[column], k * CHUNK + row, problem, hint)
            self._before[k + 1] = self._before[k] + np.stack([(rows == o).sum(0) for o in (0, 1)], axis=1)
        self.cells: NDArray[np.int64] = self._before[-1]
        if not self.cells.any():
            raise InputError("the bank has no question: no truth is known", file=source)

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """(n,) text, None where samples are identified by their number."""
        return self._id

    def name(self, sample: int) -> str:
        """Return the id of a sample, or its number if it has none."""
        return str(sample) if self._id is None else str(self._id[sample])

    def member(self, concept: int, truth: int, rank: int) -> int:
        """Return the number of a sample of a cell."""
        before = self._before[:, concept, truth]
        chunk = int(before.searchsorted(rank, side="right")) - 1
        rows = self.truth[chunk * CHUNK : (chunk + 1) * CHUNK, concept]
        return chunk * CHUNK + int((rows == truth).nonzero()[0][rank - before[chunk]])

    @cached_property
    def hash(self) -> str:
        """SHA-256 of concepts, truth, ids and patients, by which a transcript is tied to its bank."""
        digest = hashlib.sha256("\n".join((str(self.samples), *self.concepts)).encode())
        for start in range(0, self.samples, CHUNK):
            digest.update(np.ascontiguousarray(self.truth[start : start + CHUNK]).tobytes())
            if self._id is not None:
                digest.update("\n".join(self._id[start : start + CHUNK].tolist()).encode())
        if self.patient is not None:
            digest.update(np.ascontiguousarray(self.patient, np.int64).data)
        return digest.hexdigest()
