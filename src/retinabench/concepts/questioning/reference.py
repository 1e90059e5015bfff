"""How the disagreement of several readers enters the intervals of the rates.

The questions are drawn, and the answers judged, by one truth: the majority of the readers, one random reader per image, or one reader
(`banks/readers.py`). The same answers also tell the rates against any other truth of the same images. Let w_i >= 0 be the weight
of image i in a rate, such as 1 where another truth sees the concept, or the share of the readers who see it:

    rate = sum_i w_i [answer i is right] / sum_i w_i,      right: yes for a sensitivity, no for a specificity.

Images with the same truth of the bank and the same weight are a *stratum*. As images are drawn at random within a truth, those
asked about are a random sample of each stratum in random order, and its share of right answers has a confidence sequence. With S
strata, each at the level 1 - alpha / S, the weighted mean of their ends holds the rate with a probability of at least 1 - alpha at
every number of questions. A stratum whose truth is unknown was never asked about: [0, 1].

What the intervals are about:

- **majority**: the rate against the majority of the panel. The interval is the hull of those against the majority of the whole panel and
  of the panel without any one of its readers: it holds at its level for each of them.
- **random**: the rate for a new image as a random reader of the panel reads it. Each image brings its own draw, so that the
  confidence sequence for new samples contains the disagreement as it is. That of this bank is about the readings drawn;
  `random reader` beside it averages over all of them.
- a **reader**: the rate against that reader, to whom no uncertainty is ascribed.

"New samples" of strata are images with the same shares of readings as in this bank. The accuracy is treated as the rates are, with the
images whose truth is known as weights. The AUROC against another truth is the mean of those between each stratum that lacks the concept by
it and each that has it, with the products of their shares as weights; each has a sequence of its own (`inference/ranking.py`). Claims are
against the chosen truth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import UNKNOWN
from retinabench.concepts.banks.readers import MAJORITY, ReaderPanel
from retinabench.concepts.inference.confidence_sequences import RateEnds
from retinabench.concepts.inference.gaussian_process import says_yes
from retinabench.concepts.inference.ranking import AnswerRanking, sequence
from retinabench.concepts.inference.rates import ALPHA, ANYTHING, CellAnswers, Rate
from retinabench.concepts.questioning.answered import Answered
from retinabench.concepts.questioning.examination import ConceptResult, Disagreement, Examination, Readers

SIGNS = {"sensitivity": 1, "specificity": 0}
AVERAGE = "random reader"


class Strata:
    """The strata of one rate, with what was asked and answered in each."""

    def __init__(
        self,
        answered: Answered,
        truth: NDArray[np.int8],
        weight: NDArray[Any],
        sample: NDArray[np.int64],
        right: NDArray[np.bool_],
    ) -> None:
        self.samples = int(np.count_nonzero(weight))
        weight = np.asarray(weight, np.float64)
        total = weight.sum()
        self.cells: list[tuple[float, CellAnswers]] = []
        self.unknown = 0.0
        for sign in (UNKNOWN, 0, 1):
            for value in np.unique(weight[(truth == sign) & (weight > 0)]).tolist():
                mine = (truth == sign) & (weight == value)
                share = float(value * mine.sum() / total)
                if sign == UNKNOWN:
                    self.unknown += share
                else:
                    asked = mine[sample]
                    self.cells.append((share, answered.members(mine, sample[asked], right[asked])))

    @property
    def value(self) -> float | None:
        """The weighted share of right answers; None where a stratum was not asked about."""
        if self.unknown or not self.cells or not all(cell.asked for _, cell in self.cells):
            return None
        return sum(share * cell.right / cell.asked for share, cell in self.cells)

    def bank(self, alpha: float) -> RateEnds:
        """Return the interval for this bank; alpha is the probability of an error."""
        return self._joined([cell.bank(alpha / len(self.cells)) for _, cell in self.cells])

    def new(self, alpha: float) -> RateEnds:
        """Return the interval for new images with the same shares of readings; alpha is the probability of an error."""
        return self._joined([cell.new(alpha / len(self.cells)) for _, cell in self.cells])

    def _joined(self, ends: list[RateEnds]) -> RateEnds:
        if not self.samples:
            return ANYTHING
        low, high = (
            sum(share * end[k] for (share, _), end in zip(self.cells, ends, strict=True)) for k in (0, 1)
        )
        return RateEnds(min(low, 1.0), min(high + self.unknown, 1.0))


def enter_readers(examined: Examination, panel: ReaderPanel) -> Examination:
    """Return an examination with the disagreement of the readers in its intervals."""
    results, concepts = dict(examined.concepts), {}
    others = panel.others()
    for place, name in enumerate(examined.bank.concepts):
        votes, truth = panel.votes[:, place], np.asarray(examined.bank.truth[:, place])
        sample, _, prob = examined.record.about(place)
        yes = says_yes(prob)
        against, rates = {}, {}
        for measure, sign in SIGNS.items():
            strata = partial(Strata, examined.answered, truth, sample=sample, right=yes == bool(sign))
            possible = {key: strata(values[:, place] == sign) for key, values in others.items()}
            if panel.truth == MAJORITY:
                whole: Rate = getattr(results[name], measure)
                rates[measure] = _widened(whole, list(possible.values()), examined.rates)
            made = {key: strata(votes[:, k] == sign) for k, key in enumerate(panel.readers)}
            made[AVERAGE] = strata((votes == sign).sum(axis=1) / np.maximum((votes >= 0).sum(axis=1), 1))
            against[measure] = {key: _rate(value) for key, value in {**made, **possible}.items()}
        if panel.truth == MAJORITY:
            truths = [values[:, place] for values in others.values()]
            wider = _jointly_widened(results[name], examined, place, truths)
            results[name] = replace(wider, sensitivity=rates["sensitivity"], specificity=rates["specificity"])
        disputed = int(((votes == 1).any(axis=1) & (votes == 0).any(axis=1)).sum())
        concepts[name] = Disagreement(disputed, against)
    return replace(examined, readers=Readers(panel.truth, panel.readers, concepts, results))


def _jointly_widened(
    one: ConceptResult, examined: Examination, place: int, truths: list[NDArray[np.int8]]
) -> ConceptResult:
    """Widen the intervals of accuracy and AUROC, which both kinds of samples enter."""
    truth = np.asarray(examined.bank.truth[:, place])
    sample, _, prob = examined.record.about(place)
    yes = says_yes(prob)
    possible = [
        Strata(examined.answered, truth, values >= 0, sample, yes == (values[sample] == 1))
        for values in truths
    ]
    ranked: AnswerRanking = one.auroc
    if ranked.pairs:
        ends = [RateEnds(ranked.low, ranked.high)]
        ends += [ranking_against(examined, place, values) for values in truths]
        ranked = ranked._replace(**_hull(ends)._asdict())
    return replace(one, accuracy=_widened(one.accuracy, possible, examined.rates), auroc=ranked)


def ranking_against(examined: Examination, place: int, other: NDArray[np.int8]) -> RateEnds:
    """Return the 95 % interval of the AUROC against another truth of the same images."""
    truth = np.asarray(examined.bank.truth[:, place])
    kinds = [[(truth == sign) & (other == value) for sign in (UNKNOWN, 0, 1)] for value in (0, 1)]
    pairs = [(a, b) for a in kinds[0] for b in kinds[1] if a.any() and b.any()]
    total = sum(int(a.sum()) * int(b.sum()) for a, b in pairs)
    low = high = 0.0
    for a, b in pairs:
        share = int(a.sum()) * int(b.sum()) / total
        compared = examined.answered.compared(place, np.where(b, 1, np.where(a, 0, UNKNOWN)).astype(np.int8))
        ends = ANYTHING if compared is None else sequence(*compared, ALPHA / len(pairs))[0]
        low, high = low + share * ends.low, high + share * ends.high
    return RateEnds(low, min(high, 1.0)) if pairs else ANYTHING


def _rate(strata: Strata) -> Rate:
    return Rate(strata.value, *strata.bank(ALPHA), of=strata.samples)


def _widened(rate: Rate, possible: list[Strata], rates: int) -> Rate:
    """The hull of the intervals of a rate and of those against the other possible truths."""
    if rate.low is None or rate.high is None:
        return rate
    possible = [one for one in possible if one.samples]
    low, high = _hull([RateEnds(rate.low, rate.high), *(one.bank(ALPHA) for one in possible)])
    new, simultaneous = (
        ends and _hull([ends, *(one.new(alpha) for one in possible)])  # None for the accuracy
        for ends, alpha in ((rate.new, ALPHA), (rate.simultaneous, ALPHA / rates))
    )
    return replace(rate, low=low, high=high, new=new, simultaneous=simultaneous)


def _hull(ends: list[RateEnds]) -> RateEnds:
    return RateEnds(min(end.low for end in ends), max(end.high for end in ends))
