"""The board of a known density: draws beside those of the samplers that come with the package (`samplers.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import numpy as np

from retinabench.core.results import Document, JsonObject
from retinabench.fidelity.densities.density import KnownDensity
from retinabench.fidelity.densities.moments import Bias, Moments, Verdict
from retinabench.reports.toolkit.number_format import TWO_DIGITS
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table, to_text

ORDER: tuple[Verdict, ...] = ("unbiased", "too few draws", "biased")


@dataclass(frozen=True)
class SamplerRow(Document):
    """A sampler's runs, mean over seeds; `z` is the worst of them all, `ess_per_gradient` of the slowest quantity."""

    title: str
    verdicts: Mapping[str, int]
    gradients: float
    mean: Bias
    variance: Bias
    z: float
    moment: str
    ess_per_gradient: float
    modes: tuple[float, ...] = ()
    here: bool = False

    @classmethod
    def of(cls, title: str, runs: Sequence[Moments], *, here: bool = False) -> SamplerRow:
        def over_seeds(pick: str) -> float:
            return float(np.mean([getattr(one, pick) for one in runs]))

        def biases(pick: str) -> Bias:
            every = [getattr(one, pick) for one in runs]
            return Bias(float(np.mean([one.worst for one in every])), float(np.mean([one.mean for one in every])))

        worst = min(runs, key=lambda one: (one.p, -abs(one.z)))
        verdicts = {name: sum(one.verdict == name for one in runs) for name in ORDER}
        return cls(
            title, {name: count for name, count in verdicts.items() if count}, over_seeds("gradients"), biases("mean"),
            biases("variance"), worst.z, worst.moment, over_seeds("ess_per_gradient"),
            tuple(np.mean([one.modes for one in runs], axis=0).tolist()) if runs[0].modes else (), here,
        )  # fmt: skip

    @property
    def verdict(self) -> str:
        """The verdict, or that of some seeds where they differ, the worst first."""
        runs = sum(self.verdicts.values())
        if len(self.verdicts) == 1:
            return next(iter(self.verdicts))
        worst = max(self.verdicts, key=lambda name: list(ORDER).index(name))  # type: ignore[arg-type]
        return f"{worst} ({self.verdicts[worst]} of {runs})"


@cache
def _shipped() -> JsonObject:
    file = resources.files("retinabench.fidelity.densities").joinpath("samplers.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def shipped_rows(name: str) -> list[SamplerRow]:
    """Return the rows of the package's samplers on a density."""
    rows = _shipped().get(name, {}).values()
    return [SamplerRow(**{**row, "mean": Bias(*row["mean"]), "variance": Bias(*row["variance"])}) for row in rows]


@dataclass(frozen=True, eq=False)
class DensityBoard:
    """Draws of one density by method, a run for each seed, among the shipped rows."""

    known: KnownDensity
    own: Mapping[str, list[Moments]] = field(default_factory=dict)

    @property
    def rows(self) -> list[SamplerRow]:
        """All samplers: unbiased ones first, then by effective draws per gradient."""
        own = [SamplerRow.of(title, runs, here=True) for title, runs in self.own.items()]

        def place(row: SamplerRow) -> tuple[int, float]:
            return max(list(ORDER).index(name) for name in row.verdicts), -np.nan_to_num(row.ess_per_gradient)  # type: ignore[arg-type]

        return sorted([*own, *shipped_rows(self.known.name)], key=place)

    @property
    def conclusions(self) -> list[str]:
        """A sentence on each run of one's own."""
        return [
            f"{title}{f', run {number}' if len(runs) > 1 else ''}: {one.conclusion}."
            for title, runs in self.own.items()
            for number, one in enumerate(runs, 1)
        ]

    def table(self) -> Table:
        """Return the board as a table, with the conclusions below it."""
        columns = [
            Column("draws are", text=True), Column("worst z"), Column("mean", "bias of the"), Column("variance", "bias of the"),
            Column("per 1,000", "ESS"),
            *(Column(f"mode {k + 1}", f"weight {p:.2f}") for k, p in enumerate(self.known.modes)),
            Column("gradients"),
        ]  # fmt: skip

        def cells(row: SamplerRow) -> list[Cell]:
            ess, known = 1000 * row.ess_per_gradient, np.isfinite(row.gradients)
            return [
                Cell(row.verdict), Cell.number(row.z, form=TWO_DIGITS), Cell.number(row.mean.worst, form=TWO_DIGITS),
                Cell.number(row.variance.worst, form=TWO_DIGITS), Cell(f"{ess:.3g}") if known and row.gradients else UNDEFINED,
                *(Cell.number(share, form=TWO_DIGITS) for share in row.modes),
                Cell(f"{row.gradients:,.0f}") if known else UNDEFINED,
            ]  # fmt: skip

        rows = [Row(f"{row.title}{' (here)' * row.here}", cells(row)) for row in self.rows]
        legend = (
            "Biases in posterior stds and variances, of the worst coordinate; z: in standard errors, of the worst moment; ESS of the slowest "
            "quantity, bulk. The package's samplers: means over seeds 0, 1 and 2, worst z of all."
        )
        note = " ".join([*self.conclusions, legend])
        return Table.of(
            f"{self.known.about['title']}: moments against the truth", columns, rows, row_header="sampler", note=note
        )

    @property
    def text(self) -> str:
        return to_text(self.table())

    def to_dict(self) -> JsonObject:
        """Return the content of JSON: own runs with all numbers, and every row."""
        own = {title: [one.to_dict() for one in runs] for title, runs in self.own.items()}
        return {
            "density": self.known.name,
            "runs": own,
            "rows": [row.to_dict() | {"verdict": row.verdict} for row in self.rows],
        }
