"""What an examination says of each concept: rates, goals, thresholds, overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.concepts.banks.bank import CHUNK, Bank
from retinabench.concepts.inference.claims import Claim, RateEnds, needed
from retinabench.concepts.inference.rates import ALPHA, ANYTHING, LEAST, Rate
from retinabench.concepts.questioning.examination import Examination, Readers
from retinabench.concepts.questioning.referral import Agreement, AtEqualGrade
from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject, json_content
from retinabench.core.settings import read_toml
from retinabench.metrics.image_sets import operating_points
from retinabench.metrics.intervals import Interval
from retinabench.reports.toolkit.tables import (
    COUNT,
    PERCENT,
    TWO_DIGITS,
    UNDEFINED,
    Cell,
    Column,
    NumberFormat,
    Quantity,
    Row,
    Table,
    p_value,
    percent,
)

SIGNED = NumberFormat(2, signed=True)
ALL = "all"
Goals = dict[str, dict[str, float]]


def parse_goals(texts: Sequence[str], concepts: Sequence[str]) -> Goals:
    """Read goals, each ``sensitivity=0.85`` or ``sensitivity=85%``, ``"specificity of haemorrhage=0.8"`` or a TOML file.

    The file has a table per concept and one named ``all``, with ``sensitivity`` and ``specificity``. What is stated for one
    concept is preferred to what is stated for all.
    """
    stated: Goals = {}
    for text in texts:
        for source, concept, measure, value in _of_file(Path(text)) if text.endswith(".toml") else [_of_text(text)]:
            if concept not in (ALL, *concepts):
                problem = f"{source} is a goal of an unknown concept '{concept}'"
                raise InputError(problem, hint=nearest(concept, concepts))
            known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1
            if measure not in OUTCOMES or not known:
                hint = "For example sensitivity=0.85, or 'specificity of NAME=0.8'."
                raise InputError(f"{source} is not a goal", hint=hint)
            if measure in stated.setdefault(concept, {}):
                raise InputError(f"{source} states the {measure} of '{concept}' twice", hint="State it once.")
            stated[concept][measure] = float(value)
    common = stated.pop(ALL, {})
    found = {concept: {**common, **stated.get(concept, {})} for concept in concepts}
    return {concept: goals for concept, goals in found.items() if goals}


def _of_text(text: str) -> tuple[str, str, str, Any]:
    """What a text states: its name in messages, the concept, the measure and the rate."""
    left, number = (part.strip() for part in text.partition("=")[::2])
    measure, of, concept = left.partition(" of ")
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = -1.0
    return f"--goal '{text}'", concept.strip() if of else ALL, measure.strip().lower(), value


def _of_file(path: Path) -> Iterator[tuple[str, str, str, Any]]:
    for concept, goals in read_toml(path).items():
        if not isinstance(goals, Mapping):
            hint = f"Write [{concept}] and its goals below it."
            raise InputError(f"'{concept}' is not a table", file=path, hint=hint)
        for measure, value in goals.items():
            yield f"{path}: {measure} of '{concept}'", concept, measure, value


MOSTLY = 0.8
"""Share of the samples with either of two concepts that have both, from which on they are said to occur together."""


@dataclass(frozen=True)
class ConceptPair:
    """Two concepts, and how many samples whose truth is known for both have both, and just one."""

    concepts: tuple[str, str]
    both: int
    one: int


def together(bank: Bank) -> list[ConceptPair]:
    """Return the pairs of concepts with both / (both + one) >= `MOSTLY` (Jaccard's index), in the order of the concepts."""
    count = len(bank.concepts)
    both, one = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
    for start in range(0, bank.samples, CHUNK):
        rows = np.asarray(bank.truth[start : start + CHUNK])
        # Counts of a chunk are exact in single precision, for which products of matrices are fast.
        yes, no = (rows == 1).astype(np.float32), (rows == 0).astype(np.float32)
        mixed = (yes.T @ no).astype(np.int64)
        both += (yes.T @ yes).astype(np.int64)
        one += mixed + mixed.T
    return [
        ConceptPair((bank.concepts[i], bank.concepts[j]), int(both[i, j]), int(one[i, j]))
        for i, j in combinations(range(count), 2)
        if both[i, j] and both[i, j] >= MOSTLY * (both[i, j] + one[i, j])
    ]


OUTCOMES = {"sensitivity": ("tp", "fn", 1), "specificity": ("tn", "fp", 0)}
"""Measure -> the names of its right and of its wrong answers, and the truth of its samples."""


@dataclass(frozen=True)
class ConceptRate:
    """Sensitivity or specificity of a concept.

    `interval` is for new samples, 95 % by itself, `simultaneous` together with all other rates. `counted` is what both count, answers
    and samples in the bank, or patients where they have several samples. Without a `goal` nothing is judged.
    """

    concept: str
    measure: str
    right: int
    asked: int
    of: int
    interval: RateEnds
    simultaneous: RateEnds
    goal: float | None = None
    counted: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """What samples of that kind are called: "with" or "without" the concept."""
        return "with" if self.measure == "sensitivity" else "without"

    @property
    def value(self) -> float:
        """Share of right answers among those given; NaN where none was."""
        return self.right / self.asked if self.asked else float("nan")

    @property
    def quantity(self) -> Quantity:
        return Quantity(self.value, *self.interval)

    @property
    def stated(self) -> Quantity:
        return Quantity(self.value, *self.judged)

    @property
    def judged(self) -> tuple[float, float]:
        """The simultaneous interval; all rates are possible after fewer answers than `LEAST`."""
        return self.simultaneous if (self.counted or (self.asked, 0))[0] >= LEAST else (0.0, 1.0)

    @property
    def available(self) -> int:
        """How many independent answers the bank can give: samples, or patients where they have several."""
        return self.counted[1] if self.counted else self.of

    @property
    def standing(self) -> str:
        """`met` or `missed` where the simultaneous interval lies on one side of the goal, else `open`; `no goal` without one."""
        if self.goal is None:
            return "no goal"
        low, high = self.judged
        return "met" if low >= self.goal else "missed" if high < self.goal else "open"


@dataclass(frozen=True, eq=False)
class ExaminationReport:
    """An examination with its reference and the tables that are reported with it."""

    examination: Examination
    goals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    together: Sequence[ConceptPair] = ()
    referral: Agreement | None = None

    @cached_property
    def rates(self) -> Sequence[tuple[ConceptRate, ConceptRate]]:
        return [
            (self._rate(place, name, "sensitivity"), self._rate(place, name, "specificity"))
            for place, name in enumerate(self.examination.bank.concepts)
        ]

    @property
    def every_rate(self) -> list[ConceptRate]:
        return [rate for pair in self.rates for rate in pair]

    def _rate(self, place: int, concept: str, measure: str) -> ConceptRate:
        one = self.examination[concept]
        right, wrong, truth = OUTCOMES[measure]
        rate: Rate = getattr(one, measure)
        return ConceptRate(
            concept, measure, one.counts[right], one.counts[right] + one.counts[wrong],
            int(self.examination.bank.cells[place, truth]), rate.new or ANYTHING, rate.simultaneous or ANYTHING,
            self.goals.get(concept, {}).get(measure), (rate.patients.asked, rate.patients.of) if rate.patients else None,
        )  # fmt: skip

    @property
    def judged(self) -> Sequence[ConceptRate]:
        return [rate for rate in self.every_rate if rate.standing in ("met", "missed")]

    def to_dict(self) -> JsonObject:
        content = self.examination.to_dict()
        content["goals"] = self.goals
        content["findings"] = [
            {"concept": rate.concept, "measure": rate.measure, "goal": rate.goal, "finding": rate.standing}
            for rate in self.judged
        ]
        content["bank"]["together"] = json_content(self.together)
        return content if self.referral is None else content | {"referral": self.referral.to_dict()}


def recognition(sensitivity: ConceptRate, specificity: ConceptRate) -> str:
    """Return `recognised`, `reversed` or `open`: whether yes is said more often where the concept is, in new samples too.

    Guessing, in whatever proportion of yes and no, has sensitivity + specificity = 1. `recognised`: the lower ends of both
    simultaneous intervals add up to more; `reversed`: the upper ends to less.
    """
    low, high = (sensitivity.judged[k] + specificity.judged[k] for k in (0, 1))
    return "recognised" if low > 1 else "reversed" if high < 1 else "open"


@dataclass(frozen=True)
class CutOff:
    """A threshold on P(yes) that serves a concept better than one half, chosen on the very answers it is stated for.

    Yes is P(yes) of `threshold` or more: the shortest decimal between two answers that yields the largest sum of both rates.
    """

    concept: str
    auroc: float
    threshold: str
    sensitivity: float
    specificity: float


def ranks_better_than_chance(answers: Mapping[str, Sequence[float]]) -> bool:
    """Whether the answers rank samples with the concept above those without, more than chance alone often does.

    Mann and Whitney's test, 2.5 % one-sided, for each concept by itself: it decides whether another threshold is worth a try on new
    images, and is no finding. The interval of the AUROC does not serve here: it closes to a point where two samples happen to
    rank above two others.
    """
    without, having = _arrays(answers)
    if not len(without) or not len(having) or np.ptp(np.concatenate([without, having])) == 0:
        return False
    # The normal approximation needs samples; the exact distribution is that without ties, which make it cautious.
    method: Literal["exact", "asymptotic"] = "exact" if len(having) * len(without) <= 1000 else "asymptotic"
    return bool(stats.mannwhitneyu(having, without, alternative="greater", method=method).pvalue < 0.025)


def _arrays(answers: Mapping[str, Sequence[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    without, having = (np.asarray(answers[kind], np.float64) for kind in ("without", "with"))
    return without, having


def cut_offs(report: ExaminationReport) -> list[CutOff]:
    """Return better thresholds for the concepts that their cut does not serve although the answers rank them.

    These are the concepts whose answers rank samples better than by chance, while the yes and no at their cut do not, or miss a goal.
    """
    better = []
    missed = {rate.concept for rate in report.judged if rate.standing == "missed"}
    for pair in report.rates:
        concept = pair[0].concept
        one = report.examination[concept]
        said = {"with": [1.0] * one.counts["tp"] + [0.0] * one.counts["fn"]}
        said["without"] = [1.0] * one.counts["fp"] + [0.0] * one.counts["tn"]
        served = ranks_better_than_chance(said)
        if (served and concept not in missed) or not ranks_better_than_chance(one.answers):
            continue
        without, having = _arrays(one.answers)
        label = np.repeat([0, 1], [len(without), len(having)])
        threshold, sensitivity, specificity = operating_points(label, np.concatenate([without, having]))
        best = 1 + int(np.argmax(sensitivity[1:] + specificity[1:]))
        below = max((answer for answer in np.concatenate([without, having]) if answer < threshold[best]), default=0.0)
        cut = short_decimal(float(below), float(threshold[best]))
        assert one.auroc.value is not None  # both kinds were asked, otherwise nothing is ranked
        reached = float(sensitivity[best]), float(specificity[best])
        if sum(reached) > pair[0].value + pair[1].value + 1e-9:  # else one half is as good
            better.append(CutOff(concept, one.auroc.value, cut, *reached))
    return better


def short_decimal(below: float, at_most: float) -> str:
    """Return the decimal with the fewest significant digits that is above `below` and at most `at_most`."""
    for digits in range(1, 18):
        step = 10.0 ** (np.floor(np.log10(at_most)) - digits + 1) if at_most > 0 else 1.0
        text = f"{np.floor(at_most / step + 1e-9) * step:.{digits}g}"
        if below < float(text) <= at_most:
            return text
    return repr(at_most)


def readers_tables(readers: Readers) -> list[Table]:
    concepts, tables, rows = readers.concepts, [], []
    for measure in OUTCOMES:
        names = list(next(iter(concepts.values())).against[measure])
        against = [Row(name, [_against(one.against[measure][name]) for one in concepts.values()]) for name in names]
        ranges = (one.range[measure] for one in concepts.values())
        shown = [Cell(" to ".join(map(percent, ends))) if ends else UNDEFINED for ends in ranges]
        columns = [Column(f"{name} ({one.disputed:,} disputed)") for name, one in concepts.items()]
        caption = f"{measure.capitalize()} in this bank against each truth, with 95 % intervals where not all was asked"
        tables.append(Table.of(caption, columns, [*against, Row("range of the readers", shown)], row_header="Truth"))
    for name, told in concepts.items():
        for measure, one in told.beside.items():
            gap, p = one.model_minus_mean, f"p = {p_value(one.p_value)}"
            cells = [Cell.of(one.model, TWO_DIGITS), Cell.of(one.mean_reader, TWO_DIGITS)]
            cells.append(Cell.number(gap.value, gap.low, gap.high, form=SIGNED, below=p))
            rows.append(Row(f"{name}, {measure}", cells))
    if rows:
        columns = [Column("Model"), Column("Mean reader"), Column("Model less mean reader")]
        caption = "The model beside the readers, each against the majority of the other readers"
        tables.append(Table.of(caption, columns, rows, row_header="Concept and rate"))
    return tables


def beside_lines(readers: Readers) -> list[str]:
    told = {name: one.beside for name, one in readers.concepts.items() if one.beside}
    width = max(map(len, told), default=0)
    lines = []
    for name, beside in told.items():
        cells = {}
        for rate, one in beside.items():
            gap, model = one.model_minus_mean, f"{TWO_DIGITS(one.model.value)} {one.verdict}"
            cells[rate] = f"{model}, {SIGNED(gap.value)} {SIGNED.interval(gap.low, gap.high)}"
        lines.append(f"{name:<{width}}  {cells.get('sensitivity', ''):<51}{cells.get('specificity', '')}".rstrip())
    head = "The model beside the mean reader, each judged by the majority of the other readers (95 % interval of the difference):"
    return [head, f"{'':<{width}}  {'sensitivity':<51}specificity", *lines] if lines else []


def _against(rate: Rate) -> Cell:
    if not rate.of:
        return UNDEFINED
    if rate.value is None:
        return Cell(f"[{percent(rate.low or 0)}, {percent(rate.high or 0)}]")
    if rate.low == rate.high:  # every image was asked about
        return Cell.number(rate.value, form=PERCENT)
    return Cell.number(rate.value, rate.low, rate.high, form=PERCENT)


def referral_tables(found: Agreement) -> list[Table]:
    """Return the tables: by concept, the agreement by grade and concept, and by grade what referred images are said to show."""
    concepts = found.concepts
    heads = ["Images asked about", "Referred where it says yes", "Referred where it says no"]
    heads += ["Difference at equal grade", "Agreement"]
    rows = []
    for name, one in concepts.items():
        shares = (one.refers_if_yes, one.refers_if_no, one.at_equal_grade, one.agreement)
        rows.append(Row(name, [Cell.number(one.images, form=COUNT), *map(_cell, shares)]))
    caption = "Concept answers and referral, with 95 % intervals that respect patients"
    tables = [Table.of(caption, [Column(head) for head in heads], rows, row_header="Concept")]
    rows = []
    for grade in sorted({grade for one in concepts.values() for grade in one.grades}):
        graded = [one.grades.get(grade) for one in concepts.values()]
        rows.append(Row(grade, [Cell.number(None) if one is None else _cell(one.agreement) for one in graded]))
    if rows:
        caption = "Agreement of each concept's answers with the referral, by grade"
        tables.append(Table.of(caption, [Column(name) for name in concepts], rows, row_header="Grade"))
    if (named := found.named).images:
        rows, some = [], "of these, a yes to any concept"
        for label, of in [("all", named.overall), *named.grades.items()]:
            pairs = ((Cell.number(share.images, form=COUNT), _cell(share)) for share in (of.referred, of.not_referred))
            rows.append(Row(label, [cell for pair in pairs for cell in pair]))
        columns = [Column("Referred images"), Column(some), Column("Other images"), Column(some)]
        caption = "Images about which every concept was asked: how many show at least one, by the model's answers"
        tables.append(Table.of(caption, columns, rows, row_header="Grade"))
    return tables


def _cell(share: Interval) -> Cell:
    why = share.why or "" if isinstance(share, AtEqualGrade) else ""
    return Cell.number(share.value, share.low, share.high, form=PERCENT, why=why)


def recognised(report: ExaminationReport) -> dict[str, list[str]]:
    """Return the concepts by what their answers show (`recognition`); `unknown` where a kind of sample was not asked."""
    names: dict[str, list[str]] = {"recognised": [], "open": [], "reversed": [], "unknown": []}
    for pair in report.rates:
        names[recognition(*pair) if all(rate.asked for rate in pair) else "unknown"].append(pair[0].concept)
    return names


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim that was stated before the first question: what is decided of this bank, and what is known of new samples."""

    claim: Claim
    rate: ConceptRate
    of_new_patients: bool  # whether a claim about new patients decides this rate

    @property
    def says(self) -> str:
        return {"holds": "Holds", "fails": "Does not hold"}.get(self.claim.decided, "Undecided")

    @property
    def new(self) -> str:
        """What of new samples: it holds, does not hold or is open, by the interval that holds for all rates at once."""
        (low, high), goal, at_least = self.rate.judged, self.claim.goal, self.claim.at_least
        if low >= goal if at_least else high <= goal:
            return "holds"
        return "does not hold" if (high < goal if at_least else low > goal) else "is open"


def claim_verdicts(report: ExaminationReport) -> list[ClaimVerdict]:
    stated = [claim for claim in report.examination.claims if claim.registered]
    new = {(claim.concept, claim.truth) for claim in stated if claim.new}
    return [
        ClaimVerdict(claim, report.rates[claim.concept][1 - claim.truth], (claim.concept, claim.truth) in new)
        for claim in stated
    ]


def missed_goals(report: ExaminationReport) -> list[tuple[ConceptRate, str]]:
    """Return the rates that are shown to be below their goals, with "yes" or "no" where every answer about the concept was the same."""
    missed = []
    for rate in report.judged:
        if rate.standing == "missed":
            counts = report.examination[rate.concept].counts
            said = {"yes": counts["tp"] + counts["fp"], "no": counts["tn"] + counts["fn"]}
            given = [answer for answer, count in said.items() if count]
            missed.append((rate, given[0] if len(given) == 1 else ""))
    return missed


def by_goal(rates: Iterable[ConceptRate]) -> dict[tuple[str, float], list[ConceptRate]]:
    groups: dict[tuple[str, float], list[ConceptRate]] = {}
    for rate in rates:
        if rate.goal is not None:
            groups.setdefault((rate.measure, rate.goal), []).append(rate)
    return groups


def scarce_samples(report: ExaminationReport) -> list[tuple[int, list[ConceptRate]]]:
    """Return the rates with too few samples to show a good model to be good, by measure and goal, behind the least number of right answers."""
    scarce = []
    for (_, goal), judged in sorted(by_goal(report.every_rate).items()):
        least = needed(goal, ALPHA / report.examination.rates)
        if few := [rate for rate in judged if rate.available < least]:
            scarce.append((least, few))
    return scarce


def exhausted(report: ExaminationReport) -> list[ConceptRate]:
    """Return the rates whose goals are open although every sample was asked: only more samples, or readers, can settle them."""
    return [rate for rate in _not_scarce(report) if rate.standing == "open" and rate.asked == rate.of]


def _not_scarce(report: ExaminationReport) -> list[ConceptRate]:
    scarce = [rate for _, few in scarce_samples(report) for rate in few]
    return [rate for rate in report.every_rate if rate not in scarce]


def entangled(report: ExaminationReport) -> list[tuple[list[str], int]]:
    """Return the groups of concepts that nearly always occur together (`together`), and in how many samples pairs of each differ at most."""
    groups: list[tuple[set[str], int]] = []
    for pair in report.together:
        joined, most = set(pair.concepts), pair.one
        for group in [group for group in groups if group[0] & joined]:
            groups.remove(group)
            joined, most = joined | group[0], max(most, group[1])
        groups.append((joined, most))
    return [([name for name in report.examination.bank.concepts if name in joined], most) for joined, most in groups]


def left_open(report: ExaminationReport) -> list[ConceptRate]:
    """Return the rates that are still open although the bank has enough samples left to settle them.

    Without any goal these are all rates with questions left.
    """
    wanted = "open" if report.goals else "no goal"
    return [rate for rate in _not_scarce(report) if rate.asked < rate.of and rate.standing == wanted]
