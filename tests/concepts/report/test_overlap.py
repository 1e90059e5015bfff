"""Concepts that occur together."""

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.report.overlap import ConceptPair, together


def test_concepts_come_together_where_jaccard_says_so():
    truth = np.array([[1, 1, 0], [1, 1, 1], [1, 1, -1], [1, 0, 0], [1, 1, 0], [0, 0, 1]], np.int8)
    assert together(Bank(None, ["a", "b", "c"], truth)) == [ConceptPair(("a", "b"), both=4, one=1)]
