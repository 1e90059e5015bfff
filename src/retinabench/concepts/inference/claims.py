"""Claims such as "sensitivity of haemorrhage >= 0.85", decided by a sequential test as soon as the answers allow.

The claim is about the K right answers among all N samples of its cell: K >= k1 against K <= k0 = k1 - 1. Answers come in random
order without replacement. For K <= k0 the wealth

    M_n = sum_{K > k0} w(K) P(answers | K) / P(answers | K = k0),    P(right next | K) = (K - right so far) / (N - asked so far),

is a non-negative supermartingale with M_0 = 1: the mean of each factor is at most 1 under every K <= k0, because the numerator's
probability of a correct answer is at least the denominator's, which is at least the true one. By Ville's inequality it ever
reaches 1 / (1 - confidence) with probability at most 1 - confidence, so that the decision "holds" is valid the first time it
does, at any stopping time. The mirrored wealth, the sum over K <= k0 against K = k1, decides "fails". Only one of the two can err.

Other cells may be asked in between, and the answers may decide which cell is next: the order of a cell's samples is drawn
independently, so the probability of a correct answer above is the same given everything asked before, in any cell. Neither the
claim nor the choice of the sample in the cell may depend on the answers, and K must be fixed: an examinee must give the same
answer whenever a question is asked.

Of m claims that were stated together, each is decided once its wealth reaches m / (1 - confidence): all decisions are right with a
probability of at least the confidence. One of the two sides of every claim is true, so that m decisions can err whatever was decided
before, and a correction by steps (Holm) would not hold. A claim that was not stated before the first answer is *exploratory*: its
answers are counted, and nothing is decided.

The weights w are uniform over at most 1,000 values of K; any fixed choice is valid.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject

MIXTURE = 1000
FORM = re.compile(r"\s*(sensitivity|specificity) of (.+?)\s*(>=|<=|≥|≤)\s*([0-9.]+)\s*(%?)\s*", re.IGNORECASE)


class Wealth:
    """The wealth against "K = `null`" of a mixture of the values `others`, all above it or all below it.

    References:
        Ville, Étude critique de la notion de collectif (1939).
        Robbins, Annals of Mathematical Statistics 41:1397 (1970), on mixtures.
        Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement, NeurIPS 2020.
    """

    def __init__(self, null: int, others: NDArray[np.int64], of: int) -> None:
        self.values = np.concatenate([[null], others]).astype(np.float64)
        self.of = of
        self.log = np.concatenate([[0.0], np.full(len(others), -math.log(len(others)))])

    def update(self, correct: bool, right: int, asked: int) -> float:
        """Return the log wealth after one more answer."""
        chance = (self.values - right) / (self.of - asked)
        with np.errstate(divide="ignore"):
            self.log += np.log(np.clip(chance if correct else 1 - chance, 0.0, 1.0))
        if self.log[0] == -np.inf:
            # K = null is impossible: nothing to divide by, and `Claim` sees what is certain.
            return -math.inf
        peak = self.log[1:].max()
        if peak == -np.inf:
            return -math.inf
        return float(peak + np.log(np.exp(self.log[1:] - peak).sum()) - self.log[0])


@dataclass
class Claim:
    """A claim about one cell of a bank, and the state of its decision."""

    text: str
    concept: int
    truth: int
    at_least: bool
    goal: float
    confidence: float
    of: int
    together: int = 1
    registered: bool = True
    decided: str = "undecided"
    after: int | None = None
    asked: int = 0
    right: int = 0
    _wealth: list[Wealth] = field(default_factory=list)
    _least: int = 0

    def __post_init__(self) -> None:
        # The least K for which the larger side of the claim is true: K >= goal N, or for "<=" K > goal N.
        exact = self.goal * self.of
        near = round(exact)
        if abs(exact - near) < 1e-9 * self.of:  # 0.85 x 20 must be 17
            exact = float(near)
        least = self._least = math.ceil(exact) if self.at_least else math.floor(exact) + 1
        if not self.registered:
            return
        if least <= 0 or least > self.of:  # true or false whatever the answers
            self._say(least <= 0, 0)
            return
        above, below = np.arange(least, self.of + 1), np.arange(least)
        self._wealth = [Wealth(least - 1, _thin(above), self.of), Wealth(least, _thin(below), self.of)]

    def update(self, concept: int, truth: int, correct: bool, after: int) -> None:
        """Update the decision with an answer."""
        if (concept, truth) != (self.concept, self.truth):
            return
        if self.open:
            wealth = [one.update(correct, self.right, self.asked) for one in self._wealth]
            right, wrong = self.right + correct, self.asked + 1 - self.right - correct
            larger, smaller = right >= self._least, wrong > self.of - self._least  # certain, whatever is left
            if not larger and not smaller:
                limit = math.log(self.together) - math.log1p(-self.confidence)
                larger, smaller = (one >= limit for one in wealth)
            if larger or smaller:
                self._say(larger, after)
        self.asked += 1
        self.right += correct

    @property
    def open(self) -> bool:
        """Whether further answers can still decide the claim."""
        return self.registered and self.decided == "undecided"

    def _say(self, larger: bool, after: int) -> None:
        self.decided, self.after = "holds" if larger == self.at_least else "fails", after

    def to_dict(self, bank: Bank) -> JsonObject:
        """Return the JSON content."""
        return {
            "text": self.text,
            "concept": bank.concepts[self.concept],
            "measure": "sensitivity" if self.truth else "specificity",
            "goal": self.goal,
            "confidence": self.confidence,
            "together": self.together,
            "registered": self.registered,
            "decided": self.decided if self.registered else None,
            "after": self.after,
            "asked": self.asked,
            "of": self.of,
        }


def check_confidence(confidence: float) -> None:
    """Raise `InputError` for a confidence outside 0 … 1, such as 95."""
    if not 0 < confidence < 1:
        raise InputError(f"a confidence of {confidence:g} is not between 0 and 1", hint="For example 0.95.")


def parse_claim(
    text: str, bank: Bank, confidence: float = 0.95, *, together: int = 1, registered: bool = True
) -> Claim:
    """Parse a claim of the form `sensitivity|specificity of CONCEPT >=|<= NUMBER[%]`."""
    check_confidence(confidence)
    found = FORM.fullmatch(text)
    if not found:
        example = f"sensitivity of {bank.concepts[0]} >= 0.85"
        raise InputError(f"the claim '{text}' is not understood", hint=f"Write it as '{example}'.")
    measure, concept, sign, number, percent = found.groups()
    if concept not in bank.concepts:
        raise InputError(
            f"the claim is about an unknown concept '{concept}'", hint=nearest(concept, bank.concepts)
        )
    try:
        goal = float(number) / (100 if percent else 1)
    except ValueError:
        raise InputError(f"the claim's '{number}' is not a number", hint="For example 0.85.") from None
    if not 0 <= goal <= 1:
        raise InputError(
            f"the claim's {number}{percent} is not a share", hint="Between 0 and 1, or 0 % and 100 %."
        )
    truth = int(measure.lower() == "sensitivity")
    place = bank.concepts.index(concept)
    of = int(bank.cells[place, truth])
    if of == 0:
        kind = "positive" if truth else "negative"
        raise InputError(
            f"the claim '{text}' cannot be examined: no {kind} sample in the bank", column=concept
        )
    return Claim(text, place, truth, sign in (">=", "≥"), goal, confidence, of, together, registered)


def _thin(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `MIXTURE` of the values, evenly spread, both ends among them."""
    if len(values) <= MIXTURE:
        return values
    return values[np.linspace(0, len(values) - 1, MIXTURE).round().astype(np.int64)]
