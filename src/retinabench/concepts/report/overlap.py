"""Concepts that occur together: if every sample has both or neither, no question can tell which of them a model recognises."""

from __future__ import annotations

from itertools import combinations
from typing import TypedDict

import numpy as np

from retinabench.concepts.banks.bank import CHUNK, Bank

MOSTLY = 0.8
"""Share of the samples with either of two concepts that have both, from which on they are said to occur together."""


class Pair(TypedDict):
    """Two concepts, and how many samples whose truth is known for both have both, and just one."""

    concepts: list[str]
    both: int
    one: int


def together(bank: Bank) -> list[Pair]:
    """Return the pairs of concepts with both / (both + one) >= `MOSTLY` (Jaccard's index), in the order of the concepts.

    Reads the truth once, in chunks of rows.
    """
    count = len(bank.concepts)
    both, one = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
    for start in range(0, bank.samples, CHUNK):
        rows = np.asarray(bank.truth[start : start + CHUNK])
        # Counts of a chunk are exact in single precision, for which products of matrices are fast.
        yes, no = (rows == 1).astype(np.float32), (rows == 0).astype(np.float32)
        mixed = (yes.T @ no).astype(np.int64)
        both += (yes.T @ yes).astype(np.int64)
        one += mixed + mixed.T
    pairs: list[Pair] = []
    for i, j in combinations(range(count), 2):
        if both[i, j] and both[i, j] >= MOSTLY * (both[i, j] + one[i, j]):
            names = [bank.concepts[i], bank.concepts[j]]
            pairs.append({"concepts": names, "both": int(both[i, j]), "one": int(one[i, j])})
    return pairs
