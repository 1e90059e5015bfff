"""The boards of the fidelity benchmark: entries, divisions, tasks, the ranking over tasks, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError, printable, shown
from retinabench.core.results import Document, JsonObject, json_content
from retinabench.fidelity.densities.board import DensityBoard
from retinabench.fidelity.scoring.grading import Estimates, Evaluator
from retinabench.fidelity.scoring.measures import ALL, MEASURES, RANKED, Estimate
from retinabench.fidelity.scoring.resolution import Resolution
from retinabench.fidelity.submissions.submission import Budget, Submission, Track
from retinabench.fidelity.targets.target import Target
from retinabench.metrics.comparison import RankedModel
from retinabench.reports.leaderboard.board import Board, Entry
from retinabench.reports.toolkit.printed import printed_tables

Scores = Mapping[str, RankedModel]  # Values by measure.
TRACKS: dict[Track, str] = {"stated": "stated posterior", "infinite": "infinite width", "open": "open track"}


def scored(name: str, estimate: Estimate | None, error: float = np.nan) -> RankedModel:
    """Return the value of a measure with its interval, from its estimate and its standard error over seeds."""
    if estimate is None or not np.isfinite(estimate.value):
        return RankedModel(np.nan)
    least, most = MEASURES[name].bounds
    low, high = (min(max(end, least), most) if np.isfinite(end) else end for end in estimate.interval())
    return RankedModel(estimate.value, low, high, error=error)


def score_json(name: str, model: RankedModel) -> JsonObject:
    """Return a value for JSON; an undefined one is None with a `why`."""
    if not np.isfinite(model.value):
        return {"value": None, "why": MEASURES[name].undefined}
    numbers = {key: json_content(getattr(model, key)) for key in ("value", "low", "high")}
    return numbers | ({"error": model.error} if np.isfinite(model.error) else {})


def rank_json(model: RankedModel) -> JsonObject:
    names = {"rank": "rank", "low": "rank_low", "high": "rank_high", "best": "best", "worst": "worst"}
    return {key: json_content(getattr(model, name)) for key, name in names.items()}


@dataclass(frozen=True)
class Draws(Document):
    """How many independent draws of the posterior are as far from the reference as an entry, and the most that can be told."""

    value: float
    low: float
    high: float
    most: float

    @property
    def text(self) -> str:
        if not np.isfinite(self.value):
            return ""
        digits = 2 if self.value < 1 else 1 if self.value < 10 else 0
        return f"{'≥ ' if self.value >= self.most * (1 - 1e-9) else ''}{self.value:.{digits}f}"


@dataclass(frozen=True, eq=False)
class FidelityEntry(Entry[Submission]):
    """One method on one task: beside its seeds their estimates, and the mean of these.

    Trivial entries are shown and not ranked; neither are those whose `notes` say that they cannot be independent of the reference.
    """

    estimates: Sequence[Estimates] = ()
    mean: Estimates = field(default_factory=dict)
    rank: RankedModel | None = None
    rank_by_std: RankedModel | None = None  # by the second moment, of entries with samples

    @property
    def budget(self) -> Budget | None:
        """The largest budget of its seeds; None where no submission states one."""
        budgets = [one.about.budget for one in self.seeds if one.about.budget is not None]
        return max(budgets, key=lambda budget: budget.used, default=None)

    @property
    def counted(self) -> bool:
        """Whether its runs, or those of its code by `fidelity rerun`, counted the budget of all its submissions."""
        return all(one.about.counted or (one.about.rerun and not one.about.traced) for one in self.seeds)

    @property
    def rerun(self) -> bool:
        return all(one.about.rerun for one in self.seeds)

    @property
    def declared(self) -> bool:
        """Whether it states a budget that no hashes of a run vouch for."""
        return self.budget is not None and not self.counted


@dataclass(frozen=True, order=True)
class RankedDivision(Document):
    """What is ranked together: the submissions of one track and one tier of the budget."""

    track: Track = "stated"
    tier: int | None = None

    @classmethod
    def of(cls, submission: Submission, target: Target) -> RankedDivision:
        budget = submission.about.budget
        return cls(submission.track(target), budget.tier if budget is not None else None)

    @property
    def label(self) -> str:
        tier = "no tier of the budget" if self.tier is None else f"up to {self.tier:,} gradients per example"
        return f"{TRACKS[self.track]}, {tier}"

    @property
    def short(self) -> str:
        """The division in three words, for headings."""
        return f"{self.track}, {'no tier' if self.tier is None else f'up to {self.tier:,}'}"

    @property
    def key(self) -> tuple[int, float]:
        """Orders divisions: the stated track first, tiers by size, none last."""
        return list(TRACKS).index(self.track), np.inf if self.tier is None else self.tier


@dataclass(frozen=True, eq=False)
class TaskBoard(Board[FidelityEntry]):
    """The entries of one division on one task, the trivial ones last; its sets are groups of test points.

    `division` is None where they were scored together whatever theirs are, `resolution` where nothing is ranked.
    """

    evaluator: Evaluator
    division: RankedDivision | None = None
    resolution: Resolution | None = None

    @property
    def target(self) -> Target:
        return self.evaluator.target

    @property
    def points(self) -> dict[str, int]:
        return {group: len(rows) for group, rows in self.evaluator.resampling.groups.items()}

    @property
    def ranked_measures(self) -> tuple[str, ...]:
        return RANKED[self.target.likelihood]

    @property
    def ranked(self) -> list[FidelityEntry]:
        return [entry for entry in self.competitors if not entry.notes]

    @cached_property
    def ceiling(self) -> Mapping[str, Scores]:
        """The scores of one chain of the reference against the others, by group."""
        return {
            group: {name: scored(name, estimate) for name, estimate in of_group.items()}
            for group, of_group in self.evaluator.ceiling.items()
        }

    def draws(self, title: str) -> Draws | None:
        """Return the equivalent exact draws of an entry, None where the reference keeps no states or samples."""
        if (curve := self.evaluator.draws) is None:
            return None
        distance = self.value(title, ALL, self.ranked_measures[-1])
        value, low, high = (curve.draws(one) for one in (distance.value, distance.high, distance.low))
        return Draws(value, low, high, curve.most)

    def doubts(self, entry: FidelityEntry) -> list[str]:
        """Return what readers should ask of an entry: more exact draws than gradients, seeds of its own choice, nearer than a chain."""
        found, draws, seeds = [], self.draws(entry.title), [one.about.seed for one in entry.seeds]
        own, budget = entry.kind == "submission", entry.budget
        if own and draws is not None and budget is not None and draws.value > budget.used:
            gradients = f"{budget.used:,.0f}{' declared' * entry.declared} gradients"
            found.append(f"as near as {draws.text} exact draws with {gradients}")
        for name, chain in self.published_chain.items():
            value, sign = self.value(entry.title, ALL, name).value, 1 if MEASURES[name].higher else -1
            if own and sign * value > sign * chain:
                label = MEASURES[name].label
                found.append(f"nearer than the published chain of the reference, whose {label} is {chain:.3g}")
        numbers = sorted({seed for seed in seeds if seed is not None})
        if numbers != list(range(len(numbers))):
            found.append(f"seeds {', '.join(map(str, numbers))}, not 0 to {len(numbers) - 1}")
        return found

    @property
    def published_chain(self) -> Mapping[str, float]:
        """The ranked measures of one chain of an imported reference against the others, where they were published."""
        found = dict(self.evaluator.reference.about.published_ceiling or {})
        for printed in printed_tables().values():
            if printed.task == self.target.name and "HMC" in printed.rows:
                found |= {name: value for name, (value, _) in printed.values("HMC").items()}
        return {name: found[name] for name in self.ranked_measures if name in found}

    @property
    def ordered(self) -> list[FidelityEntry]:
        """The entries by rank, unranked ones by the first ranked measure, trivial ones last."""
        name = self.ranked_measures[0]

        def key(entry: FidelityEntry) -> tuple[bool, float]:
            value = self.value(entry.title, ALL, name).value
            place = (-value if MEASURES[name].higher else value) if np.isfinite(value) else 0.0
            return entry.kind == "trivial", entry.rank.rank if entry.rank is not None else place

        return sorted(self.entries.values(), key=key)

    def to_dict(self) -> JsonObject:
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
                "passed": None if reference.external else reference.passed,
                "why": list(reference.why),
                "verdict": reference.judgement.verdict,
                "reservations": list(reference.judgement.reservations),
            },
            "points": self.points,
            "resolution": json_content(resolution),
            "versions": {name: MEASURES[name].version for name in self.sets[ALL].scores} | {"equivalent_draws": 2},
            "ceiling": {group: _scores_json(scores) for group, scores in self.ceiling.items()},
            "chain_gradients": reference.about.chain_gradients,
            "floor": evaluator.floor,
            "entries": [self._entry_json(entry) for entry in self.entries.values()],
        }

    def _entry_json(self, entry: FidelityEntry) -> JsonObject:
        first = entry.seeds[0].about
        record = {
            "title": entry.title,
            **{key: getattr(first, key) for key in ("method", "seed", "seconds")},
            "budget": None if entry.budget is None else entry.budget.model_dump(),
            "baseline": entry.kind == "trivial",
            "shipped": entry.kind == "baseline",
            "source": [shown(one.source) for one in entry.seeds if one.source],
            "groups": {group: _scores_json(self.scores(entry.title, group)) for group in self.sets},
            "seeds": [one.about.seed for one in entry.seeds],
            "marks": list(entry.notes),
            "doubts": self.doubts(entry),
            "equivalent_draws": json_content(self.draws(entry.title)),
            "implied": None if first.implied is None else first.implied.model_dump(),
            "counted": entry.counted,
            "rerun": entry.rerun,
            "declared": entry.declared,
        }
        ranks = (("rank", entry.rank), ("rank_by_std", entry.rank_by_std))
        return record | {name: rank_json(rank) for name, rank in ranks if rank is not None}


def _scores_json(scores: Scores) -> JsonObject:
    return {name: score_json(name, model) for name, model in scores.items()}


@dataclass(frozen=True)
class RankedEntry:
    """An entry of the final ranking of a division: its mean rank over tasks, overall and by measure."""

    title: str
    rank: RankedModel
    by_measure: dict[str, float]
    tasks: int
    division: RankedDivision | None = None
    rank_by_std: RankedModel | None = None

    def to_dict(self) -> JsonObject:
        return {
            "title": self.title, **rank_json(self.rank), "by_measure": self.by_measure, "tasks": self.tasks,
            "division": json_content(self.division),
            "rank_by_std": None if self.rank_by_std is None else rank_json(self.rank_by_std),
        }  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """A file that is not on the board, and why."""

    file: Path
    why: str

    @classmethod
    def of(cls, file: Path, error: InputError, before: str = "") -> Refused:
        return cls(file, before + str(error).removeprefix(str(file)).lstrip(":, "))

    def to_dict(self) -> dict[str, str]:
        return {"file": shown(self.file), "why": printable(self.why, 500)}


@dataclass(frozen=True, eq=False)
class FidelityBoards(Document):
    """The boards of tasks and divisions, the rankings of the divisions over tasks, and the files that were left out."""

    _schema = "retinabench.fidelity-board/1"

    tasks: list[TaskBoard]
    ranking: list[RankedEntry]
    refused: list[Refused] = field(default_factory=list)
    densities: list[DensityBoard] = field(default_factory=list)

    @property
    def divisions(self) -> dict[RankedDivision | None, list[RankedEntry]]:
        """The rankings by division."""
        found: dict[RankedDivision | None, list[RankedEntry]] = {}
        for entry in self.ranking:
            found.setdefault(entry.division, []).append(entry)
        return found
