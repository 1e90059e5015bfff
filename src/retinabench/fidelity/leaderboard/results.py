"""Scores, ranks, entries and boards of the fidelity benchmark, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, printable
from retinabench.core.results import Document, JsonObject, json_content
from retinabench.core.untrusted import shown
from retinabench.fidelity.leaderboard.shipped import is_shipped
from retinabench.fidelity.scoring.grading import Estimates, Evaluator
from retinabench.fidelity.scoring.measures import ALL, MEASURES, RANKED, DrawCurve, Estimate
from retinabench.fidelity.scoring.resolution import Resolution
from retinabench.fidelity.submissions.submission import Budget, Submission, Track
from retinabench.fidelity.targets.target import Target
from retinabench.metrics.bootstrap import percentile_interval
from retinabench.reports.toolkit.number_format import Quantity

WHY_UNDEFINED = {
    "epistemic_correlation": "needs posterior samples that differ",
    "epistemic_error": "needs posterior samples",
    "disagreement_gap": "needs posterior samples",
    "nll": "a class that occurs got probability 0, or less than is stored",
}

_BOUNDS = {
    **dict.fromkeys(("agreement", "total_variation", "accuracy", "referral_area", "coverage_90"), (0.0, 1.0)),
    **dict.fromkeys(("wasserstein", "w2", "w2_as_printed", "nll", "rmse", "crps", "regret"), (0.0, np.inf)),
}

Floats = NDArray[np.float64]

Groups = Mapping[str, Mapping[str, "Score"]]

"""Scores by group of test points and measure."""


@dataclass(frozen=True)
class Draws:
    """How many independent draws of the posterior are as far from the reference as an entry, and the most that can be told."""

    quantity: Quantity
    most: float

    @classmethod
    def of(cls, curve: DrawCurve, distance: Quantity) -> Draws:
        """Return the number of draws of a distance with its interval."""
        value, low, high = (curve.draws(one) for one in (distance.value, distance.high, distance.low))
        return cls(Quantity(value, low, high), curve.most)

    @property
    def text(self) -> str:
        """The number, or that it is at least that."""
        value = self.quantity.value
        if not np.isfinite(value):
            return ""
        digits = 2 if value < 1 else 1 if value < 10 else 0
        return f"{'≥ ' if value >= self.most * (1 - 1e-9) else ''}{value:.{digits}f}"

    def to_dict(self) -> JsonObject:
        """Return the number for JSON."""
        return _interval(self.quantity) | {"most": self.most}


@dataclass(frozen=True)
class Score:
    """A measure of one entry on one group of test points: with interval and, of several seeds, standard error; why it is undefined."""

    quantity: Quantity
    why: str = ""

    @classmethod
    def of(cls, name: str, estimate: Estimate | None, error: float = np.nan) -> Score:
        """Return the score of a measure from its estimate."""
        if estimate is None or not np.isfinite(estimate.value):
            return cls(Quantity(np.nan), why=WHY_UNDEFINED.get(name, "undefined here"))
        least, most = _BOUNDS.get(name, (-np.inf, np.inf))  # a normal part of a replicate may pass them
        low, high = (min(max(end, least), most) if np.isfinite(end) else end for end in estimate.interval())
        return cls(Quantity(estimate.value, low, high, error))

    def to_dict(self) -> JsonObject:
        """Return the score for JSON; an undefined value is None with a `why`."""
        if not self.quantity.defined:
            return {"value": None, "why": self.why}
        return _interval(self.quantity) | (
            {"error": self.quantity.error} if np.isfinite(self.quantity.error) else {}
        )


@dataclass(frozen=True)
class Rank:
    """A mean rank with its 95 % interval, NaN where it was not resampled, and the best and worst place that are resolved."""

    quantity: Quantity
    places: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, value: float, replicates: Floats, places: tuple[int, int]) -> Rank:
        """Return the rank of a value with its replicates (R,)."""
        if not len(replicates):
            return cls(Quantity(float(value)), places)
        low, high = percentile_interval(replicates[:, None], points=True)
        return cls(Quantity(float(value), float(low[0]), float(high[0])), places)

    def to_dict(self) -> JsonObject:
        """Return the rank and its interval for JSON."""
        interval = _interval(self.quantity)
        best, worst = self.places
        return {"rank": interval.pop("value"), **interval, "best": best, "worst": worst}


def _interval(quantity: Quantity) -> JsonObject:
    return {name: json_content(getattr(quantity, name)) for name in ("value", "low", "high")}


SCHEMA = "retinabench.fidelity-board/1"


@dataclass(frozen=True, eq=False)
class FidelityEntry:
    """One method on one task: the submissions of its seeds, their estimates and the mean of these, and its scores.

    `marks` say why it is not ranked, where its submissions cannot be independent of the reference; `draws` are None where the
    reference keeps no states or samples.
    """

    title: str
    submissions: list[Submission]
    estimates: list[Estimates]
    mean: Estimates
    scores: Groups
    rank: Rank | None = None
    marks: tuple[str, ...] = ()
    draws: Draws | None = None

    @property
    def baseline(self) -> bool:
        """Whether it is a trivial entry, which is shown but not ranked."""
        return self.submissions[0].about.baseline

    @property
    def shipped(self) -> bool:
        """Whether all its submissions came with the package."""
        return all(is_shipped(one) for one in self.submissions)

    @property
    def budget(self) -> Budget | None:
        """The largest budget of its seeds; None where no submission states one."""
        budgets = [one.about.budget for one in self.submissions if one.about.budget is not None]
        return max(budgets, key=lambda budget: budget.used, default=None)

    @property
    def declared(self) -> bool:
        """Whether it states a budget that no hashes of a run vouch for."""
        return self.budget is not None and not self.counted

    @property
    def counted(self) -> bool:
        """Whether its runs counted the budget of all its submissions."""
        return all(one.about.counted for one in self.submissions)

    def to_dict(self) -> JsonObject:
        """Return the entry for JSON."""
        first = self.submissions[0].about
        record: JsonObject = {
            "title": self.title,
            **{key: getattr(first, key) for key in ("method", "seed", "seconds")},
            "budget": None if self.budget is None else self.budget.model_dump(),
            "baseline": self.baseline,
            "shipped": self.shipped,
            "source": [shown(one.source) for one in self.submissions if one.source],
            "groups": json_content(self.scores),
            "seeds": [one.about.seed for one in self.submissions],
            "marks": list(self.marks),
            "equivalent_draws": json_content(self.draws),
            "implied": None if first.implied is None else first.implied.model_dump(),
            "counted": self.counted,
            "declared": self.declared,
        }
        return record | ({"rank": self.rank.to_dict()} if self.rank is not None else {})


@dataclass(frozen=True, order=True)
class RankedDivision(Document):
    """What is ranked together: the submissions of one track and one tier of the budget."""

    track: Track = "stated"
    tier: int | None = None

    @classmethod
    def of(cls, submission: Submission, target: Target) -> RankedDivision:
        """Return the division of a submission."""
        budget = submission.about.budget
        return cls(submission.track(target), budget.tier if budget is not None else None)

    @property
    def label(self) -> str:
        """The division in words."""
        tier = "no tier of the budget" if self.tier is None else f"up to {self.tier:,} gradients per example"
        return f"{'stated posterior' if self.track == 'stated' else 'open track'}, {tier}"

    @property
    def short(self) -> str:
        """The division in three words, for headings."""
        return f"{self.track}, {'no tier' if self.tier is None else f'up to {self.tier:,}'}"

    @property
    def key(self) -> tuple[bool, float]:
        """Orders divisions: the stated track first, tiers by size, none last."""
        return self.track == "open", np.inf if self.tier is None else self.tier


@dataclass(frozen=True, eq=False)
class TaskBoard:
    """The entries of one division on one task, in the order in which they were read, the trivial ones last.

    `division` is None where they were scored together whatever theirs are, `resolution` where nothing is ranked.
    """

    evaluator: Evaluator
    entries: list[FidelityEntry]
    division: RankedDivision | None = None
    resolution: Resolution | None = None

    @property
    def target(self) -> Target:
        """The task."""
        return self.evaluator.target

    @property
    def points(self) -> dict[str, int]:
        """Number of test points of each group."""
        return {group: len(rows) for group, rows in self.evaluator.resampling.groups.items()}

    @property
    def ranked_measures(self) -> tuple[str, ...]:
        """The measures that rank the entries."""
        return RANKED[self.target.likelihood]

    @property
    def competitors(self) -> list[FidelityEntry]:
        """The entries that are not trivial."""
        return [entry for entry in self.entries if not entry.baseline]

    @property
    def here(self) -> set[str]:
        """Titles of the entries that did not come with the package, where others did."""
        own = {entry.title for entry in self.competitors if not entry.shipped}
        return own if len(own) < len(self.competitors) else set()

    @property
    def ranked(self) -> list[FidelityEntry]:
        """The competitors that can be independent of the reference."""
        return [entry for entry in self.competitors if not entry.marks]

    @cached_property
    def ceiling(self) -> Groups:
        """The scores of one chain of the reference against the others."""
        return {
            group: {name: Score.of(name, estimate) for name, estimate in of_group.items()}
            for group, of_group in self.evaluator.ceiling.items()
        }

    @property
    def chain_gradients(self) -> float | None:
        """Gradient evaluations per training example of one chain of the reference, burn-in included."""
        return self.evaluator.reference.about.chain_gradients

    @property
    def ordered(self) -> list[FidelityEntry]:
        """The entries by rank, unranked ones by the first ranked measure, baselines last."""
        name = self.ranked_measures[0]
        sign = -1 if MEASURES[name].higher else 1

        def key(entry: FidelityEntry) -> tuple[bool, float]:
            value = entry.scores[ALL][name].quantity.value
            place = sign * value if np.isfinite(value) else 0.0
            return entry.baseline, entry.rank.quantity.value if entry.rank is not None else place

        return sorted(self.entries, key=key)

    def to_dict(self) -> JsonObject:
        """Return task, reference, ceiling, noise floor and entries for JSON."""
        evaluator, reference = self.evaluator, self.evaluator.reference
        resolution = None
        if (found := self.resolution) is not None:
            detectable = dict(zip(self.ranked_measures, found.detectable, strict=True))
            resolution = {"pairs": found.pairs, "resolved": found.resolved, "detectable": detectable}
        return {
            "task": self.target.name,
            "title": self.target.title,
            "division": json_content(self.division),
            "likelihood": self.target.likelihood,
            "target": self.target.fingerprint(evaluator.data.sha256),
            "data": evaluator.data.sha256,
            "bootstrap": evaluator.replicates,
            "seed": evaluator.seed,
            "reference": {
                "passed": reference.passed,
                "why": list(reference.why),
                "verdict": reference.judgement.verdict,
                "reservations": list(reference.judgement.reservations),
            },
            "points": self.points,
            "resolution": json_content(resolution),
            "ceiling": json_content(self.ceiling),
            "chain_gradients": self.chain_gradients,
            "floor": evaluator.floor,
            "entries": json_content(self.entries),
        }


@dataclass(frozen=True)
class RankedEntry:
    """An entry of the final ranking of a division: its mean rank over tasks, overall and by measure."""

    title: str
    rank: Rank
    by_measure: dict[str, float]
    tasks: int
    division: RankedDivision | None = None

    def to_dict(self) -> JsonObject:
        """Return the entry for JSON."""
        return {
            "title": self.title, **self.rank.to_dict(), "by_measure": self.by_measure, "tasks": self.tasks,
            "division": json_content(self.division),
        }  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """A file that is not on the board, and why."""

    file: Path
    why: str

    @classmethod
    def of(cls, file: Path, error: InputError, before: str = "") -> Refused:
        """Return a file with the problem that was found in it, and the hint."""
        return cls(file, before + str(error).removeprefix(str(file)).lstrip(":, "))

    def to_dict(self) -> dict[str, str]:
        """Return the file and the reason for JSON."""
        return {"file": shown(self.file), "why": printable(self.why, 500)}


@dataclass(frozen=True, eq=False)
class Board(Document):
    """The boards of tasks and divisions, the rankings of the divisions over tasks, and the files that were left out."""

    tasks: list[TaskBoard]
    ranking: list[RankedEntry]
    refused: list[Refused] = field(default_factory=list)

    def to_dict(self) -> JsonObject:
        """Return the board for JSON."""
        return {"schema": SCHEMA, **super().to_dict()}
