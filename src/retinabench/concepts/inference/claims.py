"""Claims about sensitivity and specificity, decided by confidence sequences.

Confidence sequences: intervals of a rate that hold at every number of questions at once, whatever made one stop.

Of the N samples of a cell (a concept and a truth), n were asked about in random order and k answered correctly. Two rates:

- **This bank**: K / N, where K of the N samples would be answered correctly if all were asked. Samples are drawn without
  replacement, so that answers in their order have the probability

      P_K = [K]_k [N - K]_(n-k) / [N]_n,        [x]_j = x (x - 1) … (x - j + 1).

- **New samples**: p, the probability of a correct answer about a sample drawn as those of the bank were, independently of each
  other: P_p = p^k (1 - p)^(n-k).

In both cases compare with the mixture Q of all rates under Jeffreys' prior. Under the mixture of P_p by Beta(1/2, 1/2), and under
that of P_K by BetaBinomial(N, 1/2, 1/2), answers in their order have the same probability,

    Q = B(k + 1/2, n - k + 1/2) / B(1/2, 1/2).

For the true rate, M_n = Q / P is a non-negative supermartingale with M_0 = 1: given the answers so far, the next ratio
Q(answer | past) / P(answer | past) has the mean sum of Q(answer | past) over the answers that are possible, at most 1. Ville's
inequality gives P(M_n >= 1 / alpha for some n) <= alpha. The rates with M_n < 1 / alpha are an interval, since P is log-concave, and
contain the true rate for all n at once with a probability of at least 1 - alpha.

This needs two things only. The order of the samples within a cell is drawn at random, independently of the answers, and the examinee
answers a question alike whenever it is asked. The number n may then depend on anything: on the answers of this cell, on those of
other cells (even about the same images), and on the reader's patience. An interval is a function of k, n and N, so that anyone
can compute it from the counts; the intersection of the intervals after 1, 2, …, n questions would hold too, and be a little
narrower.

Several rates hold together with a probability of at least 1 - alpha if each has the level 1 - alpha / m (Bonferroni): `Level`.

References:
    Ville, Étude critique de la notion de collectif (1939).
    Robbins, Statistical methods related to the law of the iterated logarithm, Annals of Mathematical Statistics 41:1397 (1970).
    Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement, NeurIPS 2020, theorem 2.1 (prior-posterior ratio).

Claims such as "sensitivity of haemorrhage >= 0.85", decided by a sequential test as soon as the answers allow.

A claim "in new patients" is decided once its confidence sequence for new samples, of one sample of each patient, lies on one side
of the goal. Any other is about this bank: the K right answers among all N samples of its cell: K >= k1 against K <= k0 = k1 - 1. Answers come in random
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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject

LOG_BETA = math.log(math.pi)  # of B(1/2, 1/2)
STEPS = 60  # halvings of [0, 1]: to 1e-18


class RateEnds(NamedTuple):
    """The ends of an interval of a rate."""

    low: float
    high: float


def bank_sequence(right: int, asked: int, of: int, alpha: float) -> RateEnds:
    limit = _log_mixture(right, asked) + math.log(alpha)

    def inside(total: int) -> bool:  # by log P_K with K = `total`, which leaves both numbers of answers possible
        return _log_falling(total, right) + _log_falling(of - total, asked - right) - _log_falling(of, asked) > limit

    least, most = right, of - (asked - right)
    best = min(max((of + 1) * right // asked if asked else least, least), most)
    low = _boundary(inside, best, least)
    high = _boundary(inside, best, most)
    return RateEnds(low / of, high / of)


def new_sequence(right: float, asked: int, alpha: float) -> RateEnds:
    limit = _log_mixture(right, asked) + math.log(alpha)
    wrong, share = asked - right, right / asked if asked else 0.5

    def inside(p: float) -> bool:
        return _times_log(right, p) + _times_log(wrong, 1 - p) > limit

    ends = []
    for edge in (0.0, 1.0):
        inner, outer = share, edge
        for _ in range(STEPS if not inside(edge) else 0):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if inside(middle) else (inner, middle)
        ends.append(outer)  # outside by less than 1e-17: rounding does not narrow the interval
    return RateEnds(*ends)


def needed(goal: float, alpha: float) -> int:
    """Return how many samples it takes at least until answers that are all right show a rate of `goal` for new samples."""
    low, high = 1, 2
    while new_sequence(high, high, alpha).low < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if new_sequence(middle, middle, alpha).low >= goal else (middle, high)
    return high


def _boundary(inside: Callable[[int], bool], best: int, edge: int) -> int:
    """The number furthest from `best` towards `edge` that is inside; those between are inside."""
    if inside(edge):
        return edge
    inner, outer = best, edge
    while abs(outer - inner) > 1:
        middle = (inner + outer) // 2
        inner, outer = (middle, outer) if inside(middle) else (inner, middle)
    return inner


def _log_mixture(right: float, asked: int) -> float:
    """Logarithm of Q."""
    return math.lgamma(right + 0.5) + math.lgamma(asked - right + 0.5) - math.lgamma(asked + 1) - LOG_BETA


def _log_falling(x: int, j: int) -> float:
    """Logarithm of x (x - 1) … (x - j + 1)."""
    return math.lgamma(x + 1) - math.lgamma(x - j + 1)


def _times_log(count: float, p: float) -> float:
    return 0.0 if not count else count * math.log(p) if p > 0 else -math.inf


MIXTURE = 1000
FORM = re.compile(
    r"\s*(sensitivity|specificity) of (.+?)\s*(>=|<=|≥|≤)\s*([0-9.]+)\s*(%?)\s*(in this bank|in new patients)?\s*",
    re.IGNORECASE,
)


class Wealth:
    """The wealth against "K = `null`" of a mixture of the values `others`, all above it or all below it."""

    def __init__(self, null: int, others: NDArray[np.int64], of: int) -> None:
        self.values = np.concatenate([[null], others]).astype(np.float64)
        self.of = of
        self.log = np.concatenate([[0.0], np.full(len(others), -math.log(len(others)))])

    def update(self, correct: bool, right: int, asked: int) -> float:
        chance = (self.values - right) / (self.of - asked)
        with np.errstate(divide="ignore"):
            self.log += np.log(np.minimum(np.maximum(chance if correct else 1 - chance, 0.0), 1.0))
        null, others, peak = self.log[0], self.log[1:], self.log[1:].max()
        if -math.inf in (null, peak):
            # K = null or every other K is impossible: `Claim` sees what is certain.
            return -math.inf
        return float(peak + np.log(np.exp(others - peak).sum()) - null)


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
    new: bool = False
    counted: frozenset[int] | None = None
    _tally: tuple[int, int] = (0, 0)
    _wealth: list[Wealth] = field(default_factory=list)
    _least: int = 0

    def __post_init__(self) -> None:
        # The least K for which the larger side of the claim is true: K >= goal N, or for "<=" K > goal N.
        exact = self.goal * self.of
        near = round(exact)
        if abs(exact - near) < 1e-9 * self.of:  # 0.85 x 20 must be 17
            exact = float(near)
        least = self._least = math.ceil(exact) if self.at_least else math.floor(exact) + 1
        if not self.registered or self.new:
            return
        if least <= 0 or least > self.of:  # true or false whatever the answers
            self._say(least <= 0, 0)
            return
        above, below = np.arange(least, self.of + 1), np.arange(least)
        self._wealth = [Wealth(least - 1, _thin(above), self.of), Wealth(least, _thin(below), self.of)]

    def update(self, concept: int, truth: int, correct: bool, after: int, sample: int = -1) -> None:
        if (concept, truth) != (self.concept, self.truth):
            return
        if self.open:
            decide = self._decide_new if self.new else self._decide
            decide(correct, after, sample)
        self.asked += 1
        self.right += correct

    def _decide(self, correct: bool, after: int, _: int) -> None:
        wealth = [one.update(correct, self.right, self.asked) for one in self._wealth]
        right, wrong = self.right + correct, self.asked + 1 - self.right - correct
        larger, smaller = right >= self._least, wrong > self.of - self._least  # certain, whatever is left
        if not larger and not smaller:
            limit = math.log(self.together) - math.log1p(-self.confidence)
            larger, smaller = (one >= limit for one in wealth)
        if larger or smaller:
            self._say(larger, after)

    def _decide_new(self, correct: bool, after: int, sample: int) -> None:
        """Decide for new patients, by the answers about one sample of each."""
        if self.counted is not None and sample not in self.counted:
            return
        right, asked = self._tally = (self._tally[0] + correct, self._tally[1] + 1)
        low, high = new_sequence(right, asked, (1 - self.confidence) / self.together)
        larger, smaller = (
            (low >= self.goal, high < self.goal) if self.at_least else (low > self.goal, high <= self.goal)
        )
        if larger or smaller:
            self._say(larger, after)

    @property
    def open(self) -> bool:
        """Whether further answers can still decide the claim."""
        return self.registered and self.decided == "undecided" and self.asked < self.of

    @property
    def scope(self) -> str:
        return "new patients" if self.new else "this bank"

    def _say(self, larger: bool, after: int) -> None:
        self.decided, self.after = "holds" if larger == self.at_least else "fails", after

    def to_dict(self, bank: Bank) -> JsonObject:
        return {
            "text": self.text, "concept": bank.concepts[self.concept],
            "measure": "sensitivity" if self.truth else "specificity", "scope": self.scope, "goal": self.goal,
            "confidence": self.confidence, "together": self.together, "registered": self.registered,
            "decided": self.decided if self.registered else None, "after": self.after, "asked": self.asked, "of": self.of,
        }  # fmt: skip


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"a confidence of {confidence:g} is not between 0 and 1", hint="For example 0.95.")


def parse_claim(
    text: str, bank: Bank, confidence: float = 0.95, *, together: int = 1, registered: bool = True
) -> Claim:
    """Parse a claim of the form `sensitivity|specificity of CONCEPT >=|<= NUMBER[%] [in this bank|in new patients]`."""
    check_confidence(confidence)
    found = FORM.fullmatch(text)
    if not found:
        example = f"sensitivity of {bank.concepts[0]} >= 0.85"
        raise InputError(f"the claim '{text}' is not understood", hint=f"Write it as '{example}'.")
    measure, concept, sign, number, percent, scope = found.groups()
    if concept not in bank.concepts:
        raise InputError(f"the claim is about an unknown concept '{concept}'", hint=nearest(concept, bank.concepts))
    try:
        goal = float(number) / (100 if percent else 1)
    except ValueError:
        raise InputError(f"the claim's '{number}' is not a number", hint="For example 0.85.") from None
    if not 0 <= goal <= 1:
        raise InputError(f"the claim's {number}{percent} is not a share", hint="Between 0 and 1, or 0 % and 100 %.")
    truth = int(measure.lower() == "sensitivity")
    place = bank.concepts.index(concept)
    of = int(bank.cells[place, truth])
    if of == 0:
        kind = "positive" if truth else "negative"
        raise InputError(f"the claim '{text}' cannot be examined: no {kind} sample in the bank", column=concept)
    new = (scope or "").lower() == "in new patients"
    return Claim(text, place, truth, sign in (">=", "≥"), goal, confidence, of, together, registered, new=new)


def _thin(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `MIXTURE` of the values, evenly spread, both ends among them."""
    if len(values) <= MIXTURE:
        return values
    return values[np.linspace(0, len(values) - 1, MIXTURE).round().astype(np.int64)]
