"""The numbers of a study, means over seeds and ensembles with standard errors and ranks: JSON, Markdown and terminal tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from retinabench.core.errors import QUIET, Advance, Progress
from retinabench.core.files import write_bytes, write_json
from retinabench.core.results import JsonObject, json_content
from retinabench.core.seeds import derive
from retinabench.core.version import __version__
from retinabench.experiments.config import PROTOCOL
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.search import values_of
from retinabench.experiments.study.definition import UNTUNED, Study
from retinabench.experiments.study.prediction_files import ResultRow
from retinabench.experiments.study.study import Chosen
from retinabench.metrics.comparison import ScoreRanking, rank_methods
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.paired import aggregate, mean_over_subsets, ranks
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions
from retinabench.reports.toolkit.pages import render
from retinabench.reports.toolkit.tables import Cell, Column, NumberFormat, Row, Table

Key = tuple[str, str]  # set and score
DOMAIN = ("accuracy", "auroc", "nll", "ece_top_label", "referral_accuracy_area", "referral_auroc_area")
MAIN: dict[str, tuple[str, ...]] = {
    "in_domain": DOMAIN,
    "shifted": DOMAIN,
    "joint": ("ood_auroc",),
    "balanced": ("referral_accuracy_area",),
}


@dataclass(frozen=True)
class MeanScore:
    """The mean of a score over the runs of an entry; NaN where a number is undefined.

    `error` is its standard error over seeds and `rank` that of the mean; `rank_low` and `rank_high` are the ranks that resolved
    differences leave, and `first` is the share of the replicates in which the entry is first.
    """

    mean: float = np.nan
    error: float = np.nan
    runs: int = 0
    rank: float = np.nan
    rank_low: float = np.nan
    rank_high: float = np.nan
    first: float = np.nan

    @property
    def ranked(self) -> bool:
        return bool(np.isfinite(self.rank))

    def to_dict(self) -> JsonObject:
        """Return the numbers for JSON: None where undefined, ranks only where there are any."""
        known = ["rank"] * self.ranked + ["rank_low", "rank_high", "first"] * bool(np.isfinite(self.first))
        content: JsonObject = json_content({name: getattr(self, name) for name in ("mean", "error", "runs", *known)})
        return content


EntryScores = dict[Key, MeanScore]


def score_entries(
    study: Study, entries: Sequence[ResultRow], advance: Advance = lambda steps: None
) -> list[EntryScores]:
    """Return by entry of one task and criterion its scores by set and name; an entry that has a diverged seed, or no file, has no mean and no rank."""
    known = {str(k): entry for k, entry in enumerate(entries) if entry.files}
    values: dict[Key, dict[str, Sequence[float]]] = {}
    rankings: dict[Key, ScoreRanking] = {}
    if study.rules == "published":
        values = _published(known, study.seed, advance)
    elif known:
        models = {name: [read_predictions(file) for file in entry.files] for name, entry in known.items()}
        seeds = {name: entry.subsets for name, entry in known.items()}
        found, _ = rank_methods(
            models, study.bootstrap, derive(study.seed, "benchmark"), scores=MAIN, seeds=seeds,
            unranked=[name for name, entry in known.items() if entry.diverged], advance=advance,
        )  # fmt: skip
        rankings = {(name, score): one for name, of in found.items() for score, one in of.scores.items()}
        values = {key: {name: one.values for name, one in ranking.models.items()} for key, ranking in rankings.items()}
    table: list[EntryScores] = [{} for _ in entries]
    for key, of_entries in values.items():
        means = [_mean(study, entry, of_entries.get(str(k), ())) for k, entry in enumerate(entries)]
        for row, own in zip(table, _with_ranks(means, rankings.get(key), key), strict=True):
            row[key] = own
    return table


def _published(entries: Mapping[str, ResultRow], seed: int, advance: Advance) -> dict[Key, dict[str, Sequence[float]]]:
    """Return by score the values of each entry's files by the released code, which has no intervals."""
    scored: dict[str, list[dict[Key, float]]] = {name: [] for name in entries}
    for name, entry in entries.items():
        for file in entry.files:
            sets = score(read_predictions(file), "published", 0, seed).sets
            scored[name].append({(one, k): v.value for one, of in sets.items() for k, v in of.scores.items()})
            advance(1)
    found: dict[Key, dict[str, Sequence[float]]] = {}
    for key in ((name, kind) for name, kinds in MAIN.items() for kind in kinds):
        values = {name: [one.get(key, np.nan) for one in files] for name, files in scored.items()}
        if np.isfinite([one for of in values.values() for one in of]).any():
            found[key] = dict(values)
    return found


def _mean(study: Study, entry: ResultRow, values: Sequence[float]) -> MeanScore:
    """Return mean and standard error of an entry; undefined where a seed diverged, which is a property of the method."""
    if not len(values) or entry.diverged:
        return MeanScore(runs=len(values))
    groups = [[k for k, one in enumerate(entry.subsets) if set(one) <= set(seeds)] for seeds in study.seeds_by_repeat]
    if entry.members > 1 and len(groups) > 1 and all(groups):  # of other divisions: independent of each other
        found = aggregate([float(np.mean([values[k] for k in group])) for group in groups])
    else:
        seeds = len(study.run_seeds) - len(entry.lacking)
        found = mean_over_subsets(values, entry.subsets, seeds, study.rules)
    return MeanScore(found.mean, found.error, len(values))


def _with_ranks(means: Sequence[MeanScore], ranking: ScoreRanking | None, key: Key) -> list[MeanScore]:
    """Add the ranks of the means, and what the ranking resolves, to those that are defined."""
    known = [k for k, one in enumerate(means) if np.isfinite(one.mean)]
    out = list(means)
    if not known:
        return out
    order = ranks([[means[k].mean for k in known]], SCORES[key[1]].sign > 0)[0]
    for k, rank in zip(known, order.tolist(), strict=True):
        out[k] = replace(out[k], rank=rank)
        if ranking is not None and np.isfinite((model := ranking.models[str(k)]).first):
            out[k] = replace(out[k], rank_low=float(model.best), rank_high=float(model.worst), first=model.first)
    return out


def in_order(rows: Sequence[EntryScores]) -> tuple[Key | None, list[int]]:
    """Order the entries by the balanced area of accuracy over referral, else by the in-domain one; return that score, None without."""
    for key in (("balanced", "referral_accuracy_area"), ("in_domain", "referral_accuracy_area")):
        scores = [row.get(key, MeanScore()) for row in rows]
        if any(one.ranked for one in scores):
            return key, sorted(range(len(rows)), key=lambda k: scores[k].rank if scores[k].ranked else float("inf"))
    return None, list(range(len(rows)))


SCHEMA = "retinabench.benchmark/1"
RANKED: tuple[Key, ...] = (
    ("balanced", "referral_accuracy_area"),
    *((name, kind) for kind in ("referral_accuracy_area", "auroc", "nll") for name in ("in_domain", "shifted")),
)
_VALUE, _RANK = NumberFormat(4), NumberFormat(1)


@dataclass(frozen=True)
class ScoredEntry:
    """An entry with its scores."""

    entry: ResultRow
    scores: EntryScores

    @property
    def state(self) -> str:
        """ "done", or why the entry has no mean."""
        entry = self.entry
        if entry.why:
            return "no trial has a value"
        if entry.diverged:
            return f"diverged with seed {', '.join(map(str, entry.diverged))}"
        if entry.lacking:
            return f"failed with seed {', '.join(map(str, entry.lacking))}"
        return "done"

    def score(self, key: Key) -> MeanScore:
        """Return a score by set and name, undefined where there is none."""
        return self.scores.get(key, MeanScore())

    def to_dict(self, out: Path) -> JsonObject:
        """Return the entry for JSON, with files relative to `out`."""
        scores: dict[str, JsonObject] = {}
        for (name, kind), one in self.scores.items():
            scores.setdefault(name, {})[kind] = one.to_dict()
        entry = self.entry
        return {
            "name": entry.name, "method": entry.method, "members": entry.members,
            "files": [str(file.relative_to(out)) for file in entry.files], "state": self.state,
            "diverged": list(entry.diverged), "lacking": list(entry.lacking), "why": entry.why, "scores": scores,
        }  # fmt: skip


@dataclass(frozen=True)
class TaskSummary:
    """The entries of one task and criterion, the best first; `ordered_by` is the score that orders them."""

    task: str
    criterion: str
    ordered_by: Key | None
    entries: list[ScoredEntry]

    @property
    def title(self) -> str:
        """Task and criterion, such as `country_shift, tuned by AUROC, in-domain validation`."""
        return f"{self.task}, {criterion_title(self.criterion)}"

    @property
    def tables(self) -> list[Table]:
        by_set = [(SET_LABELS[name], [(name, kind) for kind in kinds], value_cell) for name, kinds in MAIN.items()]
        found = [self._table(*one) for one in (*by_set, ("Ranks", RANKED, rank_cell))]
        return [table for table in found if table is not None]

    def _table(self, caption: str, keys: Sequence[Key], cell: Callable[[ScoredEntry, Key], Cell]) -> Table | None:
        """Return the table of the scores that any entry has, None where there are none."""
        present = [key for key in keys if any(key in entry.scores for entry in self.entries)]
        if not present:
            return None
        several = len({name for name, _ in present}) > 1
        rows = [Row(entry.entry.name, [cell(entry, key) for key in present]) for entry in self.entries]
        return Table.of(caption, [score_column(key, with_set=several) for key in present], rows, row_header="method")


@dataclass(frozen=True)
class StudySummary:
    """Everything that a study says: its tables, what was chosen, and notes on runs that failed."""

    study: Study
    out: Path
    tables: list[TaskSummary]
    choices: Sequence[Chosen]
    notes: list[str]

    @property
    def complete(self) -> bool:
        """Whether every seed of every entry has its predictions."""
        return all(entry.entry.complete for table in self.tables for entry in table.entries)

    @property
    def choice_table(self) -> Table:
        """The configuration that each criterion chose."""
        columns = [Column(name, text=True) for name in ("method", "by", "value", "configuration")]
        rows = []
        for choice in self.choices:
            values = ", ".join(f"{key} = {given}" for key, given in (_chosen_values(choice) or {}).items())
            value = "" if choice.value is None else f"{choice.value:.4f}"
            cells = [choice.cell.method, criterion_title(choice.criterion), value, values or choice.why]
            rows.append(Row(choice.cell.task, [Cell(text) for text in cells]))
        return Table.of("What was chosen", columns, rows, row_header="task")

    def to_dict(self) -> JsonObject:
        """Return the content of `summary.json`."""
        study = self.study
        choices = [
            {
                "task": one.cell.task, "method": one.cell.method, "criterion": one.criterion, "value": one.value,
                "trials": one.searched, "values": _chosen_values(one), "why": one.why,
            }
            for one in self.choices
        ]  # fmt: skip
        tables = [
            {
                "task": table.task, "criterion": table.criterion, "ordered_by": table.ordered_by,
                "entries": [entry.to_dict(self.out) for entry in table.entries],
            }
            for table in self.tables
        ]  # fmt: skip
        return {
            "schema": SCHEMA, "title": study.title, "version": __version__, "protocol": PROTOCOL, "rules": study.rules,
            "definition": study.model_dump(mode="json"),
            "bootstrap": 0 if study.rules == "published" else study.bootstrap,
            "complete": self.complete, "choices": choices, "tables": tables, "notes": self.notes,
        }  # fmt: skip


def summarise(
    study: Study, out: Path, chosen: Sequence[Chosen], entries: Sequence[ResultRow], progress: Progress = QUIET
) -> StudySummary:
    """Score all entries and write `summary.json` and `summary.md` below `out`."""
    groups: dict[tuple[str, str], list[ResultRow]] = {}
    for entry in entries:
        groups.setdefault((entry.task, entry.criterion), []).append(entry)
    files = sum(len({file for entry in group for file in entry.files}) for group in groups.values())
    tables = []
    with progress.track("Scores and ranks", files, unit="files") as advance:
        for (task, criterion), group in groups.items():
            scores = score_entries(study, group, advance)
            ordered_by, order = in_order(scores)
            scored = [ScoredEntry(group[k], scores[k]) for k in order]
            tables.append(TaskSummary(task, criterion, ordered_by, scored))
    summary = StudySummary(study, out, tables, chosen, list(_notes(study, chosen)))
    write_json(out / "summary.json", summary.to_dict())
    context = {"summary": summary, "protocol": PROTOCOL}
    text = render("summary.md.j2", context, package="retinabench.experiments.study")
    write_bytes(out / "summary.md", text.encode())
    return summary


LEADS = (("in_domain", "auroc"), ("shifted", "auroc"), ("balanced", "referral_accuracy_area"))


def summary_tables(summary: StudySummary) -> Iterator[Table]:
    """Yield one table per task and criterion: the leading scores, and the rank by the score that orders it."""
    for found in summary.tables:
        keys = [key for key in LEADS if any(key in entry.scores for entry in found.entries)]
        lead = found.ordered_by or RANKED[0]
        columns = [*(score_column(key, with_set=True) for key in keys), Column("rank")]
        cells = [[*(value_cell(one, key) for key in keys), rank_cell(one, lead)] for one in found.entries]
        rows = [Row(one.entry.name, of) for one, of in zip(found.entries, cells, strict=True)]
        yield Table.of(found.title, columns, rows, row_header="method")


def criterion_title(name: str) -> str:
    return "as configured" if name == UNTUNED else f"tuned by {CRITERIA[name].title}"


def score_column(key: Key, *, with_set: bool) -> Column:
    spec = SCORES[key[1]]
    label = f"{spec.label}, {SET_LABELS[key[0]].lower()}" if with_set else spec.label
    return Column(label, direction=spec.direction)


def value_cell(entry: ScoredEntry, key: Key) -> Cell:
    """Return one score: mean ± standard error, or why there is none."""
    score = entry.score(key)
    if not np.isfinite(score.mean):
        return Cell("undefined" if entry.state == "done" else entry.state)
    return Cell.number(score.mean, error=score.error, form=_VALUE)


def rank_cell(entry: ScoredEntry, key: Key) -> Cell:
    """Return one rank with its interval; `last` for an entry whose runs diverged or failed."""
    score = entry.score(key)
    if not score.ranked:
        return Cell("undefined" if entry.state == "done" else "last")
    return Cell.number(score.rank, score.rank_low, score.rank_high, form=_RANK)


def _chosen_values(choice: Chosen) -> Mapping[str, object] | None:
    values = values_of(choice.run) if choice.run else None
    return values and {key: values[key] for key in choice.cell.space or ()}


def _notes(study: Study, chosen: Sequence[Chosen]) -> Iterator[str]:
    for choice in chosen:
        bad = [f"{n} {state.replace('_', ' ')}" for state, n in choice.searched.items() if state != "done"]
        if bad:
            counts = ", ".join(bad)
            yield f"{choice.cell.task}, {choice.cell.method}: of {study.trials} trials {counts}, ranked last"
        for seed, outcome in choice.outcomes.items():
            if outcome.state != "done":
                state = outcome.state.replace("_", " ")
                yield f"{choice.cell.task}, {choice.cell.method}, seed {seed}: {state}: {outcome.message}"
    if study.rules == "published":
        yield "published rules: standard errors as released (ddof 0, members shared), ranks without intervals"
        return
    yield (
        "±: standard error over seeds; of ensembles that share seeds by the jackknife over seeds, none where one "
        "ensemble holds them all"
    )
    if study.bootstrap:
        yield (
            "rank: of the mean; in brackets the ranks that differences leave which are resolved over patients and seeds (p < .05, "
            "Holm's correction over all pairs of a score)"
        )
