"""The answers of an examination by cell: what its rates and rankings count, for this bank and for new patients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.gaussian_process import says_yes
from retinabench.concepts.inference.patients import Patients
from retinabench.concepts.inference.ranking import AnswerRanking, Floats, ranking
from retinabench.concepts.inference.rates import CellAnswers, PatientAnswers
from retinabench.concepts.questioning.record import Record


class Answered:
    """Counts answers.

    Attributes:
        patients: Which samples count for new patients; None where each sample is a patient of its own.
    """

    def __init__(self, bank: Bank, record: Record, seed: int, drawn: bool) -> None:
        self._bank, self._record, self._drawn = bank, record, drawn
        self.patients = None if bank.patient is None else Patients(bank.patient, seed)

    def cell(self, concept: int, sign: int) -> CellAnswers:
        """Return the answers about a cell."""
        sample, truth, prob = self._record.about(concept)
        mine = truth == sign
        return self.members(
            np.asarray(self._bank.truth[:, concept]) == sign,
            sample[mine],
            says_yes(prob[mine]) == bool(sign),
        )

    def members(
        self, member: NDArray[np.bool_], sample: NDArray[np.int64], right: NDArray[np.bool_]
    ) -> CellAnswers:
        """Return the answers about any set of samples that are asked about in random order."""
        patients = None
        if self.patients is not None and (rows := self.patients.counted(member)) is not None:
            counted = np.isin(sample, rows)
            patients = PatientAnswers(int(right[counted].sum()), int(counted.sum()), len(rows))
        return CellAnswers(int(right.sum()), len(sample), int(member.sum()), self._drawn, patients)

    def ranking(self, concept: int) -> AnswerRanking:
        """Return how well the answers about a concept rank the samples."""
        _, truth, prob = self._record.about(concept)
        return ranking(
            (prob[truth == 0], prob[truth == 1]), self.compared(concept, self._bank.truth[:, concept])
        )

    def compared(self, concept: int, truth: NDArray[np.int8]) -> tuple[Floats, Floats] | None:
        """Return P(yes) about the samples that the interval of a ranking compares, in the order in which they were asked."""
        sample, _, prob = self._record.about(concept)
        if not self._drawn:
            if len(sample) < self._bank.cells[concept].sum():
                return None
            order = np.argsort(sample, kind="stable")  # an order in which the answers had no part
            sample, prob = sample[order], prob[order]
        kinds = [truth[sample] == 0, truth[sample] == 1]
        if self.patients is not None:
            rows = self.patients.compared(truth)
            kinds = [kind & np.isin(sample, some) for kind, some in zip(kinds, rows, strict=True)]
        return prob[kinds[0]], prob[kinds[1]]
