"""The question whose true answer is hardest to predict from what was already asked about the same sample.

For a sample s and a concept c, M are the samples of the bank with the same truth as s for every concept already asked about s:

    p = #{s' in M: c present} / #{s' in M: c known},      unpredictability = 1 - 2 |p - 1/2|.

s itself is in M, so p is defined. Of all unasked questions, or of those of one cell, one with the largest value is asked, ties at
random. A reading of the query engine of Geman, Geman, Hallonquist and Younes, Visual Turing test for computer vision systems, PNAS
112:3618 (2015), on the bank itself, as Fountoukidou and Sznitman (2019) use it; neither text gives a formula.

Samples with the same truth and the same questions asked are interchangeable: they form one group, and the work per question
grows with the number of groups (at most patterns of truth + questions asked), not with the number of samples. Memory: 16 bytes
per sample at the start, then 8, and 9 per group and concept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.concepts.banks.bank import CHUNK, Bank

NEVER = -1.0  # the value of a question that is asked already or has no known truth


class Unpredictable:
    """Draws the least predictable unasked question, of one cell or of the whole bank."""

    def __init__(self, bank: Bank) -> None:
        self._patterns, self._order, starts = _patterns(bank)
        self._weight = np.diff(starts).astype(np.float64)
        groups, c = self._patterns.shape
        # Groups 0 … groups - 1 are the untouched samples of each pattern; later ones hold samples that were asked about.
        self._pattern = np.arange(groups)
        self._asked = np.zeros((groups, c), bool)
        self._size = np.diff(starts)
        self._begin = starts[:-1]
        self._touched: list[list[int]] = [[] for _ in range(groups)]
        self._groups: dict[tuple[int, bytes], int] = {(k, self._asked[k].tobytes()): k for k in range(groups)}
        self._known: dict[bytes, NDArray[np.float64]] = {}
        blank = self.value(self._patterns[0], [])
        self._values = np.where(self._patterns >= 0, blank, NEVER).T.copy()  # (c, groups), as is the next
        self._truth = self._patterns.T.copy()
        self._best = self._values.max(axis=0)
        self._ties = (self._values == self._best).sum(axis=0)  # concepts that share the best value
        self._used = int(groups)

    @property
    def groups(self) -> int:
        """Number of groups so far."""
        return self._used

    def value(self, truth: ArrayLike, asked: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the unpredictability of all concepts, (c,), for samples with a given truth and history.

        Values are cached by history: they depend on the concepts asked about and their truths alone.
        """
        truths = np.asarray(truth, np.int8)
        history = np.full(len(truths), 2, np.int8)
        history[asked] = truths[asked]
        key = history.tobytes()
        if key not in self._known:
            matching = (self._patterns[:, asked] == truths[asked]).all(axis=1)
            patterns, weight = self._patterns[matching], self._weight[matching]
            present, known = weight @ (patterns == 1), weight @ (patterns >= 0)
            p = present / np.maximum(known, 1)
            self._known[key] = np.round(1 - 2 * np.abs(p - 0.5), 12)  # 0.3 and 0.7 are equally unpredictable
        return self._known[key]

    def draw(self, cell: tuple[int, int] | None, random: np.random.Generator) -> tuple[int, int, int]:
        """Return the next question (sample, concept, truth)."""
        live, size = self._size[: self._used] > 0, self._size[: self._used]
        if cell is None:
            best = np.where(live, self._best[: self._used], NEVER)
            groups = (best == best.max()).nonzero()[0]
            # Every such question is equally likely, so a group counts for its samples times its tied concepts.
            group = int(groups[_weighted(size[groups] * self._ties[groups], random)])
            concepts = (self._values[:, group] == best[group]).nonzero()[0]
            concept = int(concepts[random.integers(len(concepts))])
            truth = int(self._truth[concept, group])
        else:
            concept, truth = cell
            fits = live & (self._truth[concept, : self._used] == truth)
            row = np.where(fits, self._values[concept, : self._used], NEVER)
            groups = (row == row.max()).nonzero()[0]
            group = int(groups[_weighted(size[groups], random)])
        sample = self._take(group, random)
        self._move(sample, group, concept)
        return sample, concept, truth

    def _take(self, group: int, random: np.random.Generator) -> int:
        """Remove a random sample from a group."""
        place = int(random.integers(self._size[group]))
        self._size[group] -= 1
        last = int(self._size[group])
        if group < len(self._weight):  # untouched: a stretch of `_order`, shuffled as it is used up
            stretch = self._order[self._begin[group] :]
            sample = int(stretch[place])
            stretch[place] = stretch[last]
            return sample
        members = self._touched[group]
        members[place], members[last] = members[last], members[place]
        return members.pop()

    def _move(self, sample: int, group: int, concept: int) -> None:
        """Put a sample that was asked about a concept into the group of its new history."""
        asked = self._asked[group].copy()
        asked[concept] = True
        pattern = int(self._pattern[group])
        key = (pattern, asked.tobytes())
        place = self._groups.get(key)
        if place is None:
            place = self._groups[key] = self._used
            if self._used == len(self._pattern):
                self._grow()
            self._pattern[place], self._asked[place] = pattern, asked
            closed = asked | (self._patterns[pattern] < 0)
            self._values[:, place] = np.where(
                closed, NEVER, self.value(self._patterns[pattern], asked.nonzero()[0])
            )
            self._truth[:, place], self._best[place] = self._patterns[pattern], self._values[:, place].max()
            self._ties[place] = (self._values[:, place] == self._best[place]).sum()
            self._touched.append([])
            self._used += 1
        self._touched[place].append(sample)
        self._size[place] += 1

    def _grow(self) -> None:
        extra = max(64, len(self._pattern))
        self._pattern = np.concatenate([self._pattern, np.zeros(extra, self._pattern.dtype)])
        self._size = np.concatenate([self._size, np.zeros(extra, self._size.dtype)])
        self._asked = np.concatenate([self._asked, np.zeros((extra, self._asked.shape[1]), bool)])
        c = len(self._values)
        self._values = np.concatenate([self._values, np.full((c, extra), NEVER)], axis=1)
        self._truth = np.concatenate([self._truth, np.zeros((c, extra), np.int8)], axis=1)
        self._best = np.concatenate([self._best, np.full(extra, NEVER)])
        self._ties = np.concatenate([self._ties, np.zeros(extra, self._ties.dtype)])


def _patterns(bank: Bank) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
    """Distinct rows of truth (P, c), all samples sorted by row (n,), and where each row's samples begin (P + 1,)."""
    code = np.zeros(bank.samples, np.int64)
    for first in range(0, len(bank.concepts), 20):  # 3^20 times the number of rows so far fits 64 bits
        if first:
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
        powers = 3 ** np.arange(len(bank.concepts[first : first + 20]), dtype=np.int64)
        for start in range(0, bank.samples, CHUNK):
            rows = np.asarray(bank.truth[start : start + CHUNK, first : first + 20], np.int64) + 1
            code[start : start + CHUNK] = code[start : start + CHUNK] * 3 ** len(powers) + rows @ powers
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ends = np.append(starts, bank.samples).astype(np.int64)
    return np.ascontiguousarray(bank.truth[order[starts]]), order, ends


def _weighted(weights: NDArray[np.int64], random: np.random.Generator) -> int:
    """A place with probability proportional to its whole-numbered weight."""
    ends = weights.cumsum()
    return int(ends.searchsorted(random.integers(ends[-1]), side="right"))
