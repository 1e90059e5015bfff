"""Does the model refer the images in which it sees lesions? Concept answers against its main decision on the same images.

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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.transcript import Record
from retinabench.core.errors import InputError
from retinabench.core.results import Document, vars_of
from retinabench.metrics.image_sets import FrozenThreshold
from retinabench.metrics.intervals import Interval, clustered_proportion
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import UNKNOWN_GRADE

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
    """A share of images, with their number; without images its value is NaN."""

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
    """Mantel and Haenszel's difference, the grades that enter it, and why it has no value without any."""

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
class AnyConcept(Document):
    """Images about whose concepts all was asked: their number, and the shares with a yes to any, for all and by grade."""

    _inline = ("overall",)

    images: int
    overall: Named
    grades: Mapping[str, Named]


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
    concepts, said = {}, np.zeros(bank.truth.shape, np.int8)
    for place, name in enumerate(bank.concepts):
        sample, truth, _ = record.about(place)
        yes = record.said(place)
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
        refers, patient = decided.refers[sample], decided.patient[sample]
        parts = ((refers == yes, chosen), (refers, chosen & yes), (refers, chosen & ~yes))
        return Shares(int(chosen.sum()), *(_share(one[some], weight[some], patient[some]) for one, some in parts))

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
            standard[mine] = weight[mine] * np.where(yes[mine], with_no, with_yes) / (with_yes + with_no)
    if not used:
        why = "no grade is known" if not grades else "in no grade were both answers given"
        return AtEqualGrade(float("nan"), why=why)
    refers, patient = decided.refers[sample], decided.patient[sample]
    parts = (yes & (standard > 0), ~yes & (standard > 0))
    p, q = (clustered_proportion(refers[one], standard[one], patient[one]) for one in parts)
    value = p.value - q.value
    low = value - np.hypot(p.value - p.low, q.high - q.value)
    high = value + np.hypot(p.high - p.value, q.value - q.low)
    return AtEqualGrade(value, float(low), float(high), used)


def _named(said: NDArray[np.int8], known: Bools, decided: Decisions) -> AnyConcept:
    """Among images about whose concepts all was asked: how many with a yes to any, by the main decision."""
    whole = decided.known & known.any(axis=1) & ((said != 0) | ~known).all(axis=1)
    some = (said == 1).any(axis=1)

    def shares(chosen: Bools) -> Named:
        parts = (chosen & decided.refers, chosen & ~decided.refers)
        return Named(*(_share(some[one], np.ones(int(one.sum())), decided.patient[one]) for one in parts))

    grades = sorted(set(decided.grade[whole & (decided.grade != UNKNOWN_GRADE)].tolist()))
    by_grade = {str(one): shares(whole & (decided.grade == one)) for one in grades}
    return AnyConcept(int(whole.sum()), shares(whole), by_grade)
