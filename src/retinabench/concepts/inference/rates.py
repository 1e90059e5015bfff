"""Rates of a concept, with patients who have several images.

New patients: one sample of each counts, so that several samples of one patient do not make an interval too narrow.

The samples of a patient are alike: both eyes, several regions of one image. Answers about them are then no independent
observations, and an interval that counts them as such is too narrow for new samples (this bank's does not suffer: it is about
these very samples). So before the first question, one sample of each patient is drawn in every cell (a concept and a truth), as
the first of the patient's in an order that depends on the seed alone. Only the answers about drawn samples count for new ones.

As the samples of a cell are asked about in random order, the drawn ones come in an order of patients that is random too, whatever
their numbers of samples. With patients drawn independently, each counted answer is right with the probability

    theta = E[share of a patient's samples of the cell that are answered rightly],

given all earlier ones. The counted answers are thus independent, and their confidence sequence
(`claims.new_sequence`) holds at every number of questions. It is about theta: every patient counts once.

Sensitivity, specificity and accuracy of a concept with their confidence sequences.

A rate has three intervals (`claims.py`): of this bank and of new samples, each at 95 % by itself, and of new samples
*simultaneously* with all other rates of the examination. Everything that the page states about the model follows from the
simultaneous ones, so that it is right in all of its statements together with a probability of at least 95 %. Because either
side of a goal may be stated, every rate has one false statement that could be made of it, whatever the truth: with m rates
there are always m hypotheses that must not be rejected, and stepping down (Holm) could gain nothing over Bonferroni.

Where all answers exist already, one may state before the first answer that every question will be asked (``fixed``). The number of
samples of a cell is then fixed, and the intervals for new samples are those of Clopper and Pearson, which are narrower.

Where a bank names patients, those for new samples count one sample of each.

Where samples are selected by their other concepts instead of at random, only what is certain is said of the bank: the rate
lies between that with all other answers wrong and that with all of them right. Nothing is said of new samples until
every sample was asked.

References:
    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6:65 (1979).
    Finner and Strassburger, The partitioning principle, Annals of Statistics 30:1194 (2002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.inference.claims import RateEnds, bank_sequence, new_sequence
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import Document
from retinabench.metrics.intervals import clopper_pearson

Rows = NDArray[np.intp]


class Patients:
    """Draws the sample of each patient that counts."""

    def __init__(self, patient: Rows, seed: int) -> None:
        generator = numpy_generator(seed, "examination", "patients")
        self._patient, self._count = patient, int(patient.max()) + 1
        self._order = generator.permutation(len(patient))

    def counted(self, member: NDArray[np.bool_]) -> Rows | None:
        """Return the samples of a cell that count, one of each patient; None where no patient has two there."""
        rows = self._order[member[self._order]][::-1]
        first = np.full(self._count, -1, np.intp)
        first[self._patient[rows]] = rows  # of several, the last stays: the first of the order
        found = first[first >= 0]
        return None if len(found) == len(rows) else found


ALPHA = 0.05
LEAST = 3  # Answers from which on a rate is judged: nothing is concluded from two, whatever the goal.
ANYTHING = RateEnds(0.0, 1.0)


@dataclass(frozen=True)
class Rate(Document):
    """A rate with its 95 % intervals."""

    _optional = ("asked", "of", "new", "simultaneous", "why", "patients")

    value: float | None
    low: float | None
    high: float | None
    asked: int | None = None
    of: int | None = None
    new: RateEnds | None = None
    simultaneous: RateEnds | None = None
    why: str | None = None
    patients: PatientAnswers | None = None


class PatientAnswers(NamedTuple):
    """Answers about one sample of each patient."""

    right: int
    asked: int
    of: int


@dataclass(frozen=True)
class CellAnswers:
    """The answers about the samples of one cell; `fixed` if it was stated beforehand that all would be asked about."""

    right: int
    asked: int
    of: int
    drawn: bool = True
    patients: PatientAnswers | None = None
    fixed: bool = False

    def bank(self, alpha: float) -> RateEnds:
        if not self.drawn:
            return RateEnds(self.right / self.of, (self.right + self.of - self.asked) / self.of)
        return bank_sequence(self.right, self.asked, self.of, alpha)

    def new(self, alpha: float) -> RateEnds:
        counted = self.patients or self
        known = self.drawn or self.asked == self.of
        if self.fixed and self.asked == self.of:
            return RateEnds(*map(float, clopper_pearson(counted.right, counted.asked, 1 - alpha)))
        return new_sequence(counted.right, counted.asked, alpha) if known else ANYTHING


def rate(cell: CellAnswers, rates: int = 1) -> Rate:
    if cell.of == 0:
        return Rate(None, None, None, 0, 0, why="the bank has no such sample")
    ends, new, simultaneous = cell.bank(ALPHA), cell.new(ALPHA), cell.new(ALPHA / rates)
    value = cell.right / cell.asked if cell.asked else None
    why = None if cell.asked else "no such sample was asked"
    return Rate(value, *ends, cell.asked, cell.of, new, simultaneous, why, cell.patients)


def accuracy(cells: tuple[CellAnswers, CellAnswers]) -> Rate:
    """Return the accuracy of a concept in this bank: the rates of its two cells weighted by the cells' sizes.

    Questions are not asked in that proportion. Each cell has the level 1 - alpha / 2, so that both hold together.
    """
    filled = [cell for cell in cells if cell.of]
    samples = sum(cell.of for cell in filled)
    ends = [cell.bank(ALPHA / len(filled)) for cell in filled]
    low, high = (sum(cell.of / samples * end[k] for cell, end in zip(filled, ends, strict=True)) for k in (0, 1))
    unasked = [name for name, cell in zip(("negative", "positive"), cells, strict=True) if cell.of and not cell.asked]
    if unasked:
        return Rate(None, low, high, why=f"no {' and '.join(unasked)} sample was asked")
    return Rate(sum(cell.of / samples * cell.right / cell.asked for cell in filled), low, high)
