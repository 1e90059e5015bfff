"""The reference of an examination, and referral by its result.

How the disagreement of several readers enters the intervals of the rates.

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

Does the model refer the images in which it sees lesions? Concept answers against its main decision on the same images.

For a concept, `yes` are the images about which the model answered yes, and `refers` those that it refers. Stated are, as shares of
images of this bank's kind, for all of them and within each grade:

    agreement       = P(yes = refers)
    refers_if_yes   = P(refers | yes),     refers_if_no = P(refers | no)
    at_equal_grade  = sum_g w_g (P(refers | yes, g) - P(refers | no, g)),    w_g ~ n_yes,g n_no,g / n_g    (Mantel and Haenszel)

A difference over all images is expected of every good model, since lesions make the grade. At equal grade, a positive one means that
images of the same severity are referred more often where the model says that it sees the concept. This is an association: only
changing the image, as occlusion does, tells what the referral is made from.

Questions are not asked in the proportion of the bank: an image of a cell with N samples, n of them asked about, counts N / n times.
Intervals are at 95 % and respect patients (`metrics.inference.proportions.clustered_proportion`); that of the difference joins
those of the two standardised shares by the square-and-add rule. They are for a number of questions fixed beforehand and for samples
drawn at random within cells.

References:
    Mantel and Haenszel, Journal of the National Cancer Institute 22:719 (1959). Greenland and Robins, Biometrics 41:55 (1985).
    Newcombe, Statistics in Medicine 17:873 (1998), method 10. Zou and Donner, Statistics in Medicine 27:1693 (2008).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import UNKNOWN, Bank
from retinabench.concepts.banks.tables import MAJORITY, ReaderPanel
from retinabench.concepts.inference.claims import RateEnds
from retinabench.concepts.inference.rates import ALPHA, ANYTHING, CellAnswers, Rate
from retinabench.concepts.inference.unpredictability import AnswerRanking, says_yes, sequence
from retinabench.concepts.questioning.examination import ConceptResult, Disagreement, Examination, Readers
from retinabench.concepts.questioning.transcript import Answered, Record
from retinabench.core.errors import InputError
from retinabench.core.results import Document, JsonObject, json_content, vars_of
from retinabench.metrics.clinical.thresholds import FrozenThreshold
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import UNKNOWN_GRADE

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
        low, high = (sum(share * end[k] for (share, _), end in zip(self.cells, ends, strict=True)) for k in (0, 1))
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
        Strata(examined.answered, truth, values >= 0, sample, yes == (values[sample] == 1)) for values in truths
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


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Decisions:
    """The main decision about the samples of a bank."""

    known: Bools
    refers: Bools
    grade: NDArray[np.int8]
    patient: NDArray[np.intp]
    threshold: FrozenThreshold


@dataclass(frozen=True)
class Share(Interval):
    """A share of images, with their number; its value is NaN where there is none."""

    images: int = 0


@dataclass(frozen=True)
class Shares(Document):
    """How the answers about a concept and the referrals of some images agree."""

    images: int
    agreement: Share
    refers_if_yes: Share
    refers_if_no: Share


@dataclass(frozen=True)
class AtEqualGrade(Interval):
    """Mantel and Haenszel's difference, the grades that enter it, and why it has no value where there are none."""

    _optional = ("why",)

    grades: Sequence[int] = ()
    why: str | None = None


@dataclass(frozen=True)
class ConceptAgreement(Shares):
    """The answers about one concept beside the main decision: for all images, at equal grade, and by grade."""

    at_equal_grade: AtEqualGrade
    grades: Mapping[str, Shares]


@dataclass(frozen=True)
class Named(Document):
    """Among the referred and among the other images, the shares with at least one yes."""

    referred: Share
    not_referred: Share


@dataclass(frozen=True)
class AnyConcept:
    """Images about whose concepts all was asked: their number, and the shares with a yes to any, for all and by grade."""

    images: int
    overall: Named
    grades: Mapping[str, Named]

    def to_dict(self) -> JsonObject:
        """Return the JSON content."""
        return {"images": self.images, **self.overall.to_dict(), "grades": json_content(self.grades)}


@dataclass(frozen=True)
class Agreement(Document):
    """The answers of an examination beside the main decision."""

    threshold: FrozenThreshold
    images: int
    missing: int
    concepts: Mapping[str, ConceptAgreement]
    named: AnyConcept


def decisions(bank: Bank, predictions: Predictions, threshold: FrozenThreshold) -> Decisions:
    """Join predictions to the samples of a bank by their ``image_id``."""
    place = {name: row for row, name in enumerate(predictions.image_id.tolist())}
    rows = np.array([place.get(bank.name(sample), -1) for sample in range(bank.samples)])
    known = rows >= 0
    if not known.any():
        example = f"The bank has for example '{bank.name(0)}'."
        raise InputError("holds none of the bank's images", file=predictions.source, column="image_id", hint=example)
    prob = predictions.prob[rows]
    refers = prob > threshold.value if threshold.is_default else prob >= threshold.value
    grade = np.full(len(rows), UNKNOWN_GRADE, np.int8)
    if predictions.grade is not None:
        grade[known] = predictions.grade[rows[known]]
    patient = np.arange(len(rows))
    if predictions.patient_id is not None:
        patient[known] = np.unique(predictions.patient_id[rows[known]], return_inverse=True)[1]
    return Decisions(known, refers & known, grade, patient, threshold)


def agreement(bank: Bank, record: Record, decided: Decisions) -> Agreement:
    """Compare the answers of an examination with the main decision."""
    concepts, said = {}, np.zeros(bank.truth.shape, np.int8)
    for place, name in enumerate(bank.concepts):
        sample, truth, prob = record.about(place)
        yes = says_yes(prob)
        said[sample, place] = np.where(yes, 1, -1)
        asked = np.bincount(truth, minlength=2)
        weight = bank.cells[place][truth] / np.maximum(asked, 1)[truth]
        joined = decided.known[sample]
        concepts[name] = _concept(sample[joined], yes[joined], weight[joined], decided)
    named = _named(said, np.asarray(bank.truth) >= 0, decided)
    return Agreement(decided.threshold, int(decided.known.sum()), int((~decided.known).sum()), concepts, named)


def _concept(sample: NDArray[np.int64], yes: Bools, weight: Floats, decided: Decisions) -> ConceptAgreement:
    """The shares of one concept; sample, yes and weight are (q,) over the questions about it."""
    grade = decided.grade[sample]
    grades = sorted(set(grade[grade != UNKNOWN_GRADE].tolist()))

    def shares(chosen: Bools) -> Shares:
        refers = decided.refers[sample]
        parts = ((refers == yes, chosen), (refers, chosen & yes), (refers, chosen & ~yes))
        return Shares(
            int(chosen.sum()),
            *(_share(one[among], weight[among], decided.patient[sample[among]]) for one, among in parts),
        )

    return ConceptAgreement(
        **vars_of(shares(np.ones(len(sample), bool))),  # type: ignore[arg-type]
        at_equal_grade=_at_equal_grade(sample, yes, weight, decided, grades),
        grades={str(one): shares(grade == one) for one in grades},
    )


def _share(success: Bools, weight: Floats, patient: NDArray[np.intp]) -> Share:
    found = clustered_proportion(success, weight, patient) if len(success) else Interval(float("nan"))
    return Share(found.value, found.low, found.high, len(success))


def _at_equal_grade(
    sample: NDArray[np.int64], yes: Bools, weight: Floats, decided: Decisions, grades: Sequence[int]
) -> AtEqualGrade:
    """Mantel and Haenszel's difference over the grades in which both answers were given."""
    standard, used = np.zeros(len(sample)), []
    for one in grades:
        mine = decided.grade[sample] == one
        with_yes, with_no = weight[mine & yes].sum(), weight[mine & ~yes].sum()
        if with_yes and with_no:
            used.append(one)
            total = with_yes + with_no
            standard[mine] = weight[mine] * np.where(yes[mine], with_no, with_yes) / total
    if not used:
        why = "no grade is known" if not grades else "in no grade were both answers given"
        return AtEqualGrade(float("nan"), why=why)
    refers, patient = decided.refers[sample], decided.patient[sample]
    p, q = (
        clustered_proportion(refers[among], standard[among], patient[among])
        for among in (yes & (standard > 0), ~yes & (standard > 0))
    )
    value = p.value - q.value
    low = value - np.hypot(p.value - p.low, q.high - q.value)
    high = value + np.hypot(p.high - p.value, q.value - q.low)
    return AtEqualGrade(value, float(low), float(high), used)


def _named(said: NDArray[np.int8], known: Bools, decided: Decisions) -> AnyConcept:
    """Among images about whose concepts all was asked: how many with a yes to any, by the main decision."""
    whole = decided.known & known.any(axis=1) & ((said != 0) | ~known).all(axis=1)
    some = (said == 1).any(axis=1)

    def shares(chosen: Bools) -> Named:
        return Named(
            *(
                _share(some[among], np.ones(int(among.sum())), decided.patient[among])
                for among in (chosen & decided.refers, chosen & ~decided.refers)
            )
        )

    grades = sorted(set(decided.grade[whole & (decided.grade != UNKNOWN_GRADE)].tolist()))
    by_grade = {str(one): shares(whole & (decided.grade == one)) for one in grades}
    return AnyConcept(int(whole.sum()), shares(whole), by_grade)
