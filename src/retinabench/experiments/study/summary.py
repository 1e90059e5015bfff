"""The summary of a study: `summary.json`, the same as Markdown, and the tables that the terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retinabench.core.errors import QUIET, Progress
from retinabench.core.files import write_bytes, write_json
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.experiments.config import PROTOCOL
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.search import values_of
from retinabench.experiments.study.definition import UNTUNED, Study
from retinabench.experiments.study.prediction_files import ResultRow
from retinabench.experiments.study.results import MAIN, EntryScores, Key, MeanScore, in_order, score_entries
from retinabench.experiments.study.study import Chosen
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.registry import SCORES
from retinabench.reports.toolkit.pages import render
from retinabench.reports.toolkit.tables import Cell, Column, NumberFormat, Row, Table

SCHEMA = "retinabench.benchmark/1"
RANKED: tuple[Key, ...] = (
    ("balanced", "referral_accuracy_area"),
    ("in_domain", "referral_accuracy_area"),
    ("shifted", "referral_accuracy_area"),
    ("in_domain", "auroc"),
    ("shifted", "auroc"),
    ("in_domain", "nll"),
    ("shifted", "nll"),
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
        for (name, kind), score in self.scores.items():
            scores.setdefault(name, {})[kind] = score.to_dict()
        entry = self.entry
        return {
            "name": entry.name,
            "method": entry.method,
            "members": entry.members,
            "files": [str(file.relative_to(out)) for file in entry.files],
            "state": self.state,
            "diverged": list(entry.diverged),
            "lacking": list(entry.lacking),
            "why": entry.why,
            "scores": scores,
        }


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
        by_set = (
            self._table(SET_LABELS[name], [(name, kind) for kind in kinds], value_cell) for name, kinds in MAIN.items()
        )
        found = [*by_set, self._table("Ranks", RANKED, rank_cell)]
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
        return {
            "schema": SCHEMA,
            "title": study.title,
            "version": __version__,
            "protocol": PROTOCOL,
            "rules": study.rules,
            "definition": study.model_dump(mode="json"),
            "bootstrap": 0 if study.rules == "published" else study.bootstrap,
            "complete": self.complete,
            "choices": [
                {
                    "task": choice.cell.task,
                    "method": choice.cell.method,
                    "criterion": choice.criterion,
                    "value": choice.value,
                    "trials": choice.searched,
                    "values": _chosen_values(choice),
                    "why": choice.why,
                }
                for choice in self.choices
            ],
            "tables": [
                {
                    "task": table.task,
                    "criterion": table.criterion,
                    "ordered_by": list(table.ordered_by) if table.ordered_by else None,
                    "entries": [entry.to_dict(self.out) for entry in table.entries],
                }
                for table in self.tables
            ],
            "notes": self.notes,
        }


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
    write_bytes(out / "summary.md", markdown(summary).encode())
    return summary


def markdown(summary: StudySummary) -> str:
    context = {"summary": summary, "protocol": PROTOCOL}
    return render("summary.md.j2", context, package="retinabench.experiments.study")


LEADS = (("in_domain", "auroc"), ("shifted", "auroc"), ("balanced", "referral_accuracy_area"))


def summary_tables(summary: StudySummary) -> Iterator[Table]:
    """Yield one table per task and criterion: the leading scores, and the rank by the score that orders it."""
    for found in summary.tables:
        keys = [key for key in LEADS if any(key in entry.scores for entry in found.entries)]
        lead = found.ordered_by or RANKED[0]
        columns = [*(score_column(key, with_set=True) for key in keys), Column("rank")]
        rows = [
            Row(one.entry.name, [*(value_cell(one, key) for key in keys), rank_cell(one, lead)])
            for one in found.entries
        ]
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
    keys = list(choice.cell.space or ())
    if not choice.run:
        return None
    values = values_of(choice.run)
    return {key: values[key] for key in keys}


def _notes(study: Study, chosen: Sequence[Chosen]) -> Iterator[str]:
    for choice in chosen:
        bad = {state: n for state, n in choice.searched.items() if state != "done"}
        if bad:
            counts = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in bad.items())
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
