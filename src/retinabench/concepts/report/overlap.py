"""Concepts that occur together: if every sample has both or neither, no question can tell which of them a model recognises."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from retinabench.concepts.banks.bank import CHUNK, Bank

MOSTLY = 0.8
"""Share of the samples with either of two concepts that have both, from which on they are said to occur together."""


@dataclass(frozen=True)
class ConceptPair:
    """Two concepts, and how many samples whose truth is known for both have both, and just one."""

    concepts: tuple[str, str]
    both: int
    one: int


def together(bank: Bank) -> list[ConceptPair]:
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
    pairs: list[ConceptPair] = []
    for i, j in combinations(range(count), 2):
        if both[i, j] and both[i, j] >= MOSTLY * (both[i, j] + one[i, j]):
            pairs.append(ConceptPair((bank.concepts[i], bank.concepts[j]), int(both[i, j]), int(one[i, j])))
    return pairs
