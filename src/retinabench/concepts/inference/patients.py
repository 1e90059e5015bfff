"""New patients: one sample of each counts, so that several samples of one patient do not make an interval too narrow.

The samples of a patient are alike: both eyes, several regions of one image. Answers about them are then no independent
observations, and an interval that counts them as such is too narrow for new samples (this bank's does not suffer: it is about
these very samples). So before the first question, one sample of each patient is drawn in every cell (a concept and a truth), as
the first of the patient's in an order that depends on the seed alone. Only the answers about drawn samples count for new ones.

As the samples of a cell are asked about in random order, the drawn ones come in an order of patients that is random too, whatever
their numbers of samples. With patients drawn independently, each counted answer is right with the probability

    theta = E[share of a patient's samples of the cell that are answered rightly],

given all earlier ones. The counted answers are thus independent, and their confidence sequence
(`confidence_sequences.new_sequence`) holds at every number of questions. It is about theta: every patient counts once.

A ranking compares a sample with the concept and one without it. Pairs of them are independent if no patient is in two pairs. Where a
patient has samples of both kinds, a coin thrown for every patient before the first question says which of the two it may count for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator

Rows = NDArray[np.intp]


class Patients:
    """Draws the sample of each patient that counts."""

    def __init__(self, patient: Rows, seed: int) -> None:
        generator = numpy_generator(seed, "examination", "patients")
        self._patient, self._count = patient, int(patient.max()) + 1
        self._order = generator.permutation(len(patient))
        self._side = generator.integers(0, 2, self._count)

    def counted(self, member: NDArray[np.bool_]) -> Rows | None:
        """Return the samples of a cell that count, one of each patient; None where no patient has two there."""
        rows = self._order[member[self._order]][::-1]
        first = np.full(self._count, -1, np.intp)
        first[self._patient[rows]] = rows  # of several, the last stays: the first of the order
        found = first[first >= 0]
        return None if len(found) == len(rows) else found

    def compared(self, truth: NDArray[np.int8]) -> tuple[Rows, Rows]:
        """Return the samples without and with a concept that count in a ranking, such that no patient is on both sides."""
        known = np.asarray(truth)
        sides = [known == sign for sign in (0, 1)]
        both = np.intersect1d(*(self._patient[side] for side in sides))
        if len(both):
            sides = [side & (self._side[self._patient] == sign) for sign, side in enumerate(sides)]
        without, having = (
            np.flatnonzero(side) if (counted := self.counted(side)) is None else counted for side in sides
        )
        return without, having
