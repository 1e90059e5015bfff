"""The claims of the Retina Benchmark (Band et al. 2021, sections 6.1 to 6.3), judged on predictions files.

A claim is a list of statements "this number is larger than that one" about means over the seeds of a method. Each difference is
tested as every difference of two methods is (`metrics/paired.py`): over patients, the same in both numbers where both are of one set of
images, and over seeds. Holm's correction runs over the statements of a claim. A claim

- holds where the difference of every statement that has numbers is resolved as claimed,
- is contradicted where the difference of any is resolved the other way round,
- is not resolved otherwise, and is undefined where no statement has numbers, such as an AUROC of images of one class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from retinabench.core.errors import QUIET, Progress
from retinabench.core.files import write_bytes, write_json
from retinabench.core.results import Document
from retinabench.core.seeds import derive
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.intervals import patients_of
from retinabench.metrics.p_values import holm
from retinabench.metrics.paired import PairedSet, PairTest, Side, mean_difference, paired_sets, seed_effects
from retinabench.metrics.registry import difference_method
from retinabench.predictions.table import Predictions, Subsets, align
from retinabench.reports.toolkit.tables import Cell, Column, NumberFormat, Row, Table, p_value, to_markdown

LEVEL = 0.95
COUNTRY, SEVERITY = "country", "severity"
SINGLE = ("map", "mfvi", "radial", "fsvi", "dropout", "rank1")
ENSEMBLES = tuple(f"{name} ensemble" for name in SINGLE)
VARIATIONAL = ("mfvi", "radial", "fsvi", "rank1")
NHS = 0.85, "sensitivity_at_specificity_80"
_DROPOUT = ("dropout", "dropout ensemble")
_OTHERS = tuple(name for name in (*SINGLE, *ENSEMBLES) if name not in _DROPOUT)
Models = Mapping[str, tuple[Sequence[Predictions], Subsets]]
"""Method -> its runs, and the seeds behind each."""


@dataclass(frozen=True)
class Number:
    """The mean of a score over some methods, minus that over others."""

    methods: tuple[str, ...]
    task: str
    set: str
    score: str
    minus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """`above` is claimed to be larger than `below`."""

    label: str
    above: Number | float
    below: Number | float


@dataclass(frozen=True)
class Claim:
    """What a section says, and the statements that it makes of it."""

    section: str
    text: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Judged(Document):
    """A statement with its difference `above` - `below`; NaN where undefined, with the reason in `why`."""

    _optional = ("why",)

    label: str
    difference: float
    low: float = math.nan
    high: float = math.nan
    p_holm: float = math.nan
    why: str | None = None

    @property
    def resolved(self) -> int:
        """1 as claimed, -1 the other way round, 0 not resolved."""
        return int(np.sign(self.difference)) if self.p_holm < 1 - LEVEL else 0


@dataclass(frozen=True)
class JudgedClaim(Document):
    """A claim with its verdict: holds, contradicted, not resolved or undefined."""

    _also = ("verdict",)

    section: str
    text: str
    statements: tuple[Judged, ...]

    @property
    def verdict(self) -> str:
        known = [one.resolved for one in self.statements if math.isfinite(one.difference)]
        if not known:
            return "undefined"
        if -1 in known:
            return "contradicted"
        return "holds" if all(known) else "not resolved"


def _each(methods: Sequence[str], task: str, of_set: str, above: str, below: str) -> tuple[Statement, ...]:
    return tuple(
        Statement(f"{name}: {above} − {below}", *(Number((name,), task, of_set, score) for score in (above, below)))
        for name in methods
    )


def _against(methods: Sequence[str], other: str, task: str, of_set: str, score: str) -> tuple[Statement, ...]:
    return tuple(
        Statement(f"{name} − {other}", Number((name,), task, of_set, score), Number((other,), task, of_set, score))
        for name in methods
    )


def _reach(methods: Sequence[str], of_set: str, *, reached: bool) -> tuple[Statement, ...]:
    least, score = NHS
    found = [(name, Number((name,), COUNTRY, of_set, score)) for name in methods]
    return tuple(
        Statement(f"{name} − {least}", one, least) if reached else Statement(f"{least} − {name}", least, one)
        for name, one in found
    )


def _sets(methods: Sequence[str], task: str) -> tuple[Statement, ...]:
    return tuple(
        Statement(name, Number((name,), task, "shifted", "auroc"), Number((name,), task, "in_domain", "auroc"))
        for name in methods
    )


CLAIMS = (
    Claim("6.2", "The AUROC is higher under Severity Shift than in domain", _sets(SINGLE, SEVERITY)),
    Claim(
        "6.2", "Accuracy in domain rises with the share referred: from 0 to 50 % and on to 70 %",
        _each(SINGLE, SEVERITY, "in_domain", "accuracy_at_50", "accuracy_at_0")
        + _each(SINGLE, SEVERITY, "in_domain", "accuracy_at_70", "accuracy_at_50"),
    ),
    Claim(
        "6.2", "Accuracy under Severity Shift rises with the share referred: from 0 to 50 % and on to 70 %",
        _each(SINGLE, SEVERITY, "shifted", "accuracy_at_50", "accuracy_at_0")
        + _each(SINGLE, SEVERITY, "shifted", "accuracy_at_70", "accuracy_at_50"),
    ),
    Claim(
        "6.2", "With half of the severe cases referred, MC dropout is more accurate than MAP",
        _against(("dropout",), "map", SEVERITY, "shifted", "accuracy_at_50"),
    ),
    Claim(
        "6.2", "The other variational methods are below MAP under Severity Shift (area under the accuracy by share referred)",
        tuple(
            Statement(f"map − {name}", *(Number((one,), SEVERITY, "shifted", "referral_accuracy_area") for one in ("map", name)))
            for name in VARIATIONAL
        ),
    ),
    Claim(
        "6.2", "MAP, rank-1 and MFVI are surer of wrong predictions of severe cases than the other methods (accuracy, 50 % referred)",
        (
            Statement(
                "the others − map, rank1, mfvi",
                Number(("radial", "fsvi", "dropout"), SEVERITY, "shifted", "accuracy_at_50"),
                Number(("map", "rank1", "mfvi"), SEVERITY, "shifted", "accuracy_at_50"),
            ),
        ),
    ),
    Claim("6.1, 6.3", "The AUROC is higher on APTOS than on EyePACS", _sets(SINGLE, COUNTRY)),
    Claim(
        "6.3", "In domain MC dropout and its ensemble meet the NHS standard (sensitivity 85 % at specificity 80 %)",
        _reach(_DROPOUT, "in_domain", reached=True),
    ),
    Claim("6.3", "In domain no other method meets the NHS standard", _reach(_OTHERS, "in_domain", reached=False)),
    Claim("6.3", "On APTOS all methods meet the NHS standard", _reach((*SINGLE, *ENSEMBLES), "shifted", reached=True)),
    Claim(
        "6.3", "The AUROC of MFVI on APTOS rises until half of the images are referred, and then falls",
        _each(("mfvi",), COUNTRY, "shifted", "auroc_at_50", "auroc_at_0")
        + _each(("mfvi",), COUNTRY, "shifted", "auroc_at_50", "auroc_at_70"),
    ),
    Claim(
        "6.3", "The AUROC of the other methods on APTOS falls with the share referred: from 0 to 50 %",
        _each([name for name in SINGLE if name != "mfvi"], COUNTRY, "shifted", "auroc_at_0", "auroc_at_50"),
    ),
    Claim(
        "6.3", "In domain MC dropout, FSVI and the deep ensemble are above MAP (area under the accuracy by share referred)",
        _against(("dropout", "fsvi", "map ensemble"), "map", COUNTRY, "in_domain", "referral_accuracy_area"),
    ),
    Claim(
        "6.3", "Rankings depend on the task: variational methods gain more over MAP on EyePACS than under Severity Shift",
        (
            Statement(
                "gain on EyePACS − gain on severe cases",
                Number((*VARIATIONAL, "dropout"), COUNTRY, "in_domain", "referral_accuracy_area", minus=("map",)),
                Number((*VARIATIONAL, "dropout"), SEVERITY, "shifted", "referral_accuracy_area", minus=("map",)),
            ),
        ),
    ),
)  # fmt: skip


def judge_claims(
    tasks: Mapping[str, Models], bootstrap: int, seed: int, claims: Sequence[Claim] = CLAIMS, progress: Progress = QUIET
) -> list[JudgedClaim]:
    """Judge claims by the runs of the methods on each task; statements about methods or tasks that are missing are undefined."""
    numbers = [n for c in claims for s in c.statements for n in (s.above, s.below) if isinstance(n, Number)]
    sides = _Sides()
    with progress.track(
        "Claims", sum(len(runs) for models in tasks.values() for runs, _ in models.values())
    ) as advance:
        for task, models in tasks.items():
            scores: dict[str, list[str]] = {}
            for one in numbers:
                if one.task == task:
                    scores.setdefault(one.set, []).append(one.score)
            runs = align([run for of, _ in models.values() for run in of])
            found = paired_sets(
                runs, scores=scores, bootstrap=bootstrap, seed=derive(seed, f"claims, {task}"), advance=advance
            )
            sides.models[task] = models
            sides.sets |= {(task, one.name): one for one in found}
    return [JudgedClaim(one.section, one.text, _judged(one, sides, bootstrap)) for one in claims]


def _judged(claim: Claim, sides: _Sides, bootstrap: int) -> tuple[Judged, ...]:
    tests = [sides.test(one, bootstrap) for one in claim.statements]
    adjusted = holm([test.p for test in tests]).tolist()
    return tuple(
        Judged(one.label, *test[:3], p, test.why)
        for one, test, p in zip(claim.statements, tests, adjusted, strict=True)
    )


class _Sides:
    """The numbers of all tasks as sides of differences."""

    def __init__(self) -> None:
        self.models: dict[str, Models] = {}
        self.sets: dict[tuple[str, str], PairedSet] = {}

    def test(self, statement: Statement, replicates: int) -> PairTest:
        numbers = [one for one in (statement.above, statement.below) if isinstance(one, Number)]
        if problem := next(filter(None, map(self.why_missing, numbers)), None):
            return PairTest(math.nan, why=problem)
        above, below = (
            self.side(one)
            if isinstance(one, Number)
            else (Side(np.array([one]), np.full(replicates, one), {}), math.inf)
            for one in (statement.above, statement.below)
        )
        other = below[0]
        if len({(one.task, one.set) for one in numbers}) > 1:
            other = replace(other, draws=other.draws[::-1])  # other patients: replicates that are independent
        return mean_difference(above[0], other, min(above[1], below[1], replicates) - 1.0, LEVEL)

    def why_missing(self, number: Number) -> str | None:
        if (number.task, number.set) not in self.sets:
            return f"there are no {SET_LABELS[number.set].lower()} images of the task '{number.task}'"
        names = (*number.methods, *number.minus)
        if absent := [name for name in names if name not in self.models[number.task]]:
            return f"there are no predictions of '{absent[0]}'"
        one, k = self.place(number)
        rows = [row for name in names for row in self.rows(number.task, name) if not np.isfinite(one.point[row, k])]
        return one.scores[k].why_undefined(one.whole[rows[0]]) if rows else None

    def place(self, number: Number) -> tuple[PairedSet, int]:
        one = self.sets[number.task, number.set]
        return one, [spec.name for spec in one.scores].index(number.score)

    def rows(self, task: str, name: str) -> list[int]:
        lengths = {one: len(runs) for one, (runs, _) in self.models[task].items()}
        first = sum(lengths[one] for one in list(lengths)[: list(lengths).index(name)])
        return list(range(first, first + lengths[name]))

    def side(self, number: Number) -> tuple[Side, float]:
        one, k = self.place(number)
        of = difference_method(one.scores[k].interval).of
        value, draws, patients, effects = 0.0, np.zeros(len(one.draws)), math.inf, []
        signed = ((number.methods, 1.0), (number.minus, -1.0))
        for name, weight in [(name, sign / len(names)) for names, sign in signed for name in names]:
            rows = self.rows(number.task, name)
            value += weight * float(one.point[rows, k].mean())
            draws += weight * one.draws[:, rows, k].mean(axis=1)
            patients = min(patients, *(patients_of(one.whole[row], of) for row in rows))
            of_seeds = seed_effects(one.point[rows, k], self.models[number.task][name][1])
            effects.append({seed: weight * effect for seed, effect in of_seeds.items()})
        alike = all(of_method.keys() == effects[0].keys() for of_method in effects)
        shared = {seed: sum(of_method[seed] for of_method in effects) for seed in effects[0]} if alike else {}
        return Side(np.array([value]), draws, shared), patients


def claims_table(judged: Sequence[JudgedClaim]) -> Table:
    columns = [Column(name, text=True) for name in ("claim", "verdict")]
    columns += [Column(name) for name in ("as claimed", "against", "of")]
    rows = []
    for one in judged:
        known = [part.resolved for part in one.statements if math.isfinite(part.difference)]
        counts = (known.count(1), known.count(-1), len(known))
        rows.append(Row(one.section, [Cell(one.text), Cell(one.verdict), *map(Cell.count, counts)]))
    return Table.of("Claims of the paper", columns, rows, row_header="section")


def write_claims(judged: Sequence[JudgedClaim], out: Path) -> list[Path]:
    form = NumberFormat(3, signed=True)
    parts = [to_markdown(claims_table(judged))]
    for one in judged:
        rows = []
        for part in one.statements:
            difference = Cell.number(part.difference, part.low, part.high, form=form, why=part.why or "")
            rows.append(Row(part.label, [difference, Cell(p_value(part.p_holm))]))
        columns, caption = [Column("difference"), Column("p (Holm)")], f"{one.section}: {one.text}: {one.verdict}"
        parts.append(to_markdown(Table.of(caption, columns, rows, row_header="statement")))
    files = [out / "claims.md", out / "claims.json"]
    write_bytes(files[0], "\n".join(["# Claims of Band et al. 2021", "", *parts]).encode())
    write_json(files[1], {"schema": "retinabench.claims/1", "claims": [one.to_dict() for one in judged]})
    return files
