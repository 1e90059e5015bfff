"""The answers of an examination by cell: what its rates and rankings count, for this bank and for new patients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.gaussian_process import says_yes
from retinabench.concepts.inference.patients import Patients
from retinabench.concepts.inference.ranking import Ranking, ranking
from retinabench.concepts.inference.rates import Cell, Counted
from retinabench.concepts.questioning.record import Record


class Answered:
    """Counts answers.

    Attributes:
        patients: Which samples count for new patients; None where each sample is a patient of its own.

    Args:
        bank: The questions.
        record: What was asked and answered.
        seed: Seed of the examination.
        drawn: Whether samples were drawn at random within the cells.
    """

    def __init__(self, bank: Bank, record: Record, seed: int, drawn: bool) -> None:
        self._bank, self._record, self._drawn = bank, record, drawn
        self.patients = None if bank.patient is None else Patients(bank.patient, seed)

    def cell(self, concept: int, sign: int) -> Cell:
        """Return the answers about a cell.

        Args:
            concept: Index of the concept.
            sign: Truth of the cell, 0 or 1.
        """
        sample, truth, prob = self._record.about(concept)
        mine = truth == sign
        return self.members(
            np.asarray(self._bank.truth[:, concept]) == sign,
            sample[mine],
            says_yes(prob[mine]) == bool(sign),
        )

    def members(self, member: NDArray[np.bool_], sample: NDArray[np.int64], right: NDArray[np.bool_]) -> Cell:
        """Return the answers about any set of samples that are asked about in random order.

        Args:
            member: (n,) whether a sample of the bank belongs to it.
            sample: (q,) its samples that were asked about.
            right: (q,) whether the answers are right.
        """
        patients = None
        if self.patients is not None and (rows := self.patients.counted(member)) is not None:
            counted = np.isin(sample, rows)
            patients = Counted(int(right[counted].sum()), int(counted.sum()), len(rows))
        return Cell(int(right.sum()), len(sample), int(member.sum()), self._drawn, patients)

    def ranking(self, concept: int) -> Ranking:
        """Return how well the answers about a concept rank the samples.

        Args:
            concept: Index of the concept.
        """
        sample, truth, prob = self._record.about(concept)
        answers = prob[truth == 0], prob[truth == 1]
        if not self._drawn:
            if len(sample) < self._bank.cells[concept].sum():
                return ranking(answers, None)
            order = np.argsort(sample, kind="stable")  # an order in which the answers had no part
            sample, truth, prob = sample[order], truth[order], prob[order]
        kinds = [truth == 0, truth == 1]
        if self.patients is not None:
            rows = self.patients.compared(self._bank.truth[:, concept])
            kinds = [kind & np.isin(sample, some) for kind, some in zip(kinds, rows, strict=True)]
        return ranking(answers, (prob[kinds[0]], prob[kinds[1]]))
