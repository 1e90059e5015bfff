"""The board of a known density: draws beside those of the samplers that come with the package (`targets/samplers.toml`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from retinabench.core.results import JsonObject, json_content
from retinabench.fidelity.densities.density import KnownDensity
from retinabench.fidelity.densities.moments import Moments, Verdict
from retinabench.fidelity.targets.target import tables
from retinabench.reports.toolkit.tables import TWO_DIGITS, UNDEFINED, Cell, Column, Row, Table, to_text

ORDER: tuple[Verdict, ...] = ("unbiased", "too few draws", "biased")
VERDICTS = ("no bias of {} is seen", "too few draws of {} to tell a bias", "the draws of {} are biased")
Runs = dict[str, list[Moments]]
"""By the title of a sampler, a run for each seed."""


def shipped_runs(name: str) -> Runs:
    """Return the runs of the package's samplers on a density."""
    return {title: [Moments(**run) for run in runs] for title, runs in tables("samplers").get(name, {}).items()}


@dataclass(frozen=True, eq=False)
class DensityBoard:
    """Draws of one density by method, among those of the package."""

    known: KnownDensity
    own: Runs = field(default_factory=dict)

    @property
    def conclusions(self) -> list[str]:
        return [
            f"{title}{f', run {number}' if len(runs) > 1 else ''}: {one.conclusion}."
            for title, runs in self.own.items()
            for number, one in enumerate(runs, 1)
        ]

    @property
    def findings(self) -> list[str]:
        """The verdict on each sampler of one's own, of several seeds the worst."""
        density = self.known.about["title"]
        return [f"{density}: {VERDICTS[_worst(runs)[0]].format(title)}" for title, runs in self.own.items()]

    def table(self) -> Table:
        """Return the board as a table, unbiased samplers first, then by effective draws per gradient; the conclusions are below it."""
        columns = [Column(name) for name in ("draws are", "worst z", "mean bias", "variance bias", "ESS per 1,000")]
        if modes := self.known.modes:
            columns.append(Column(f"modes' weights ({_shares(modes)})"))
        columns.append(Column("gradients"))
        own = ((f"{title} (here)", runs) for title, runs in self.own.items())
        every = [*own, *shipped_runs(self.known.name).items()]
        every.sort(key=lambda one: (_worst(one[1])[0], -np.nan_to_num(_mean(one[1], "ess_per_gradient"))))
        legend = (
            "Biases in posterior stds and variances, of the worst coordinate; z: in standard errors, of the worst moment; ESS of the slowest "
            "quantity, bulk. Of several seeds the means, and the worst z."
        )
        caption, note = f"{self.known.about['title']}: moments against the truth", " ".join([*self.conclusions, legend])
        return Table.of(caption, columns, [_row(*one) for one in every], row_header="sampler", note=note)

    @property
    def text(self) -> str:
        return to_text(self.table())

    def to_dict(self) -> JsonObject:
        runs = {"runs": self.own, "shipped": shipped_runs(self.known.name)}
        return {"density": self.known.name, **json_content(runs)}


def _row(title: str, runs: Sequence[Moments]) -> Row:
    place, count = _worst(runs)
    gradients = _mean(runs, "gradients")
    z = max((one.z for one in runs), key=abs)
    means = (_mean(runs, name) for name in ("bias_of_mean", "bias_of_variance"))
    cells = [
        Cell(ORDER[place] + f" ({count} of {len(runs)})" * (count < len(runs))),
        *(Cell.number(x, form=TWO_DIGITS) for x in (z, *means)),
        Cell(f"{1000 * _mean(runs, 'ess_per_gradient'):.3g}") if gradients > 0 else UNDEFINED,
        *([Cell(_shares(np.mean([one.modes for one in runs], axis=0)))] if runs[0].modes else []),
        Cell(f"{gradients:,.0f}") if gradients > 0 else UNDEFINED,
    ]
    return Row(title, cells)


def _worst(runs: Sequence[Moments]) -> tuple[int, int]:
    """Return the place of the worst verdict in `ORDER`, and how many runs have it."""
    places = [ORDER.index(one.verdict) for one in runs]
    return max(places), places.count(max(places))


def _mean(runs: Sequence[Moments], name: str) -> float:
    return float(np.mean([getattr(one, name) for one in runs]))


def _shares(modes: Sequence[float]) -> str:
    return ", ".join(f"{share:.2f}" for share in modes)
