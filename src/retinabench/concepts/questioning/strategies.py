"""Strategies: which question comes next, a cell (a concept and a truth) and a sample in it.

| strategy | cell | sample | at random within cells: claims valid |
|---|---|---|---|
| random | in proportion to the questions left | at random | yes |
| unpredictability | (any) | least predictable from the truth of the sample's earlier questions | no |
| uncertainty | largest uncertainty of the Gaussian process | at random | yes |
| uncertainty+unpredictability | the same | least predictable | no |
| round-robin | of which the fewest samples were asked about | at random | yes |
| precision | whose rate is known worst, for all that its answers may be | at random | yes |
| claims | the same, among the cells of undecided claims | at random | yes |

The first four are those of Fountoukidou and Sznitman (2019). With the rules ``corrected``, a cell whose last `SATURATED`
questions occupied no new bin is skipped until all others are as far, since more of the same answers cannot lower its
uncertainty; the rules ``published`` ask it until it is empty.

With `+admissible` at the end of its name, such as `round-robin+admissible`, a strategy asks only questions whose answer is nearly equally
likely to be yes or no among the samples with the same history (Geman et al. 2015), and ends when none is left. It then selects
samples by their other concepts, as `unpredictability` does.

`precision` asks about the cell whose rate has the largest posterior variance if half of its answers were correct, rare concepts
first. It does not use the answers so far: a strategy that asks until a rate appears to be well known stops too early when
the first answers agree, and its nominal 95 % intervals covered the rate in only 92 % of 4,800 simulations with rates of
0.7. Claims are valid for any choice of cells. The number of correct answers among the N - n samples of a cell that were not
asked about, after k of n were correct, is taken as BetaBinomial(N - n, k + 1/2, n - k + 1/2) (Jeffreys' prior); the rate
(k + right) / N is known exactly once n = N.

References:
    Fountoukidou and Sznitman, Concept-Centric Visual Turing Tests for Method Validation, MICCAI 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.claims import Claim
from retinabench.concepts.inference.unpredictability import Admissible, Unpredictable
from retinabench.core.errors import InputError, nearest

SATURATED = 10
TIE = 1e-12  # uncertainties closer than this are equal: rounding must not decide
Cell = tuple[int, int]
Question = tuple[int, int, int]  # sample, concept, truth


@dataclass
class ExaminationState:
    """The state of an examination that strategies read; arrays have shape (c, 2) over concepts and truths."""

    bank: Bank
    asked: NDArray[np.int64]
    right: NDArray[np.int64]
    uncertainty: NDArray[np.float64]
    stale: NDArray[np.int64]
    claims: Sequence[Claim] = field(default_factory=list)
    skip_saturated: bool = True
    cut: Sequence[float | None] = ()
    admissible: NDArray[np.int64] | None = None

    @property
    def left(self) -> NDArray[np.int64]:
        """(c, 2) questions not yet asked, and admissible where that is wanted."""
        return self.bank.cells - self.asked if self.admissible is None else self.admissible


def in_proportion(state: ExaminationState, random: np.random.Generator) -> Cell:
    ends = state.left.ravel().cumsum()
    return _cell(int(ends.searchsorted(random.integers(ends[-1]), side="right")))


def most_uncertain(state: ExaminationState, random: np.random.Generator) -> Cell:
    """Return the non-empty cell with the largest uncertainty, skipping saturated cells while others are not."""
    candidates = state.left > 0
    if state.skip_saturated:
        fresh = candidates & (state.stale < SATURATED)
        if not fresh.any():
            state.stale[:] = 0
        else:
            candidates = fresh
    return _largest(np.where(candidates, state.uncertainty, -1.0), random)


def fewest_asked(state: ExaminationState, random: np.random.Generator) -> Cell:
    return _largest(np.where(state.left > 0, -state.asked, -np.inf).astype(np.float64), random)


def least_precise(state: ExaminationState, random: np.random.Generator) -> Cell:
    """Return the cell whose rate has the largest posterior std if half of its answers were correct."""
    return _largest(np.where(state.left > 0, _planned(state), -1.0), random)


def claimed(state: ExaminationState, random: np.random.Generator) -> Cell:
    wanted = np.zeros(state.asked.shape, bool)
    for claim in state.claims:
        wanted[claim.concept, claim.truth] |= claim.open
    return _largest(np.where(wanted, _planned(state), -1.0), random)


def _planned(state: ExaminationState) -> NDArray[np.float64]:
    """(c, 2) posterior variance of the rates, half of the answers taken to be right: a function of how many were asked."""
    return rate_variance(state.asked / 2, state.asked, state.bank.cells)


def rate_variance(right: ArrayLike, asked: ArrayLike, of: ArrayLike) -> NDArray[np.float64]:
    """Return the posterior variance of the rates of cells, r p (1 - p) (a + b + r) / (a + b + 1) / N^2.

    Here a = k + 1/2, b = n - k + 1/2, p = a / (a + b), and r = N - n.

    References:
        Gelman et al., Bayesian Data Analysis, 3rd ed. (2013), sections 2.4 and 8.3.
    """
    k, n, size = (np.asarray(values, np.float64) for values in (right, asked, of))
    total, rest = n + 1, size - n
    p = (k + 0.5) / total
    return np.asarray(rest * p * (1 - p) * (total + rest) / (total + 1) / np.maximum(size, 1) ** 2)


class AtRandom:
    """Draws a sample of a cell at random without replacement.

    Fisher-Yates over the ranks of the cell's samples, of which only the moved ones are kept: memory grows with the questions
    asked, not with the bank.
    """

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._drawn: dict[Cell, int] = {}
        self._moved: dict[Cell, dict[int, int]] = {}

    def draw(self, cell: Cell | None, random: np.random.Generator) -> Question:
        assert cell is not None
        done, moved = self._drawn.get(cell, 0), self._moved.setdefault(cell, {})
        place = int(random.integers(done, self._bank.cells[cell]))
        rank = moved.get(place, place)
        moved[place] = moved.pop(done, done)
        self._drawn[cell] = done + 1
        return self._bank.member(*cell, rank), *cell


class Strategy(NamedTuple):
    """How the cell is chosen (None: by the choice of the sample), and how the sample in it."""

    cell: Callable[[ExaminationState, np.random.Generator], Cell] | None
    sample: type[AtRandom] | type[Unpredictable]

    @property
    def companion_valid(self) -> bool:
        """Whether samples are drawn at random within a cell, so that rates, intervals and claims hold."""
        return self.sample is AtRandom


STRATEGIES = {
    "random": Strategy(in_proportion, AtRandom),
    "unpredictability": Strategy(None, Unpredictable),
    "uncertainty": Strategy(most_uncertain, AtRandom),
    "uncertainty+unpredictability": Strategy(most_uncertain, Unpredictable),
    "round-robin": Strategy(fewest_asked, AtRandom),
    "precision": Strategy(least_precise, AtRandom),
    "claims": Strategy(claimed, AtRandom),
}


ADMISSIBLE = "+admissible"  # after the name of a strategy that draws samples at random


def find_strategy(name: str) -> Strategy:
    plain = name.removesuffix(ADMISSIBLE)
    found = STRATEGIES.get(plain)
    if found is None or (name != plain and not found.companion_valid):
        raise InputError(f"unknown strategy '{name}'", hint=nearest(plain, STRATEGIES))
    return found if name == plain else found._replace(sample=Admissible)


def _largest(values: NDArray[np.float64], random: np.random.Generator) -> Cell:
    flat = values.ravel()
    ties = (flat >= flat.max() - TIE).nonzero()[0]
    return _cell(int(ties[random.integers(len(ties))]))


def _cell(place: int) -> Cell:
    return place // 2, place % 2
