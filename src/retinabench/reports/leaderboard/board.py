"""The board of a benchmark: submissions and the baselines that come with the package, ranked on every set.

The baselines are one Parquet file per benchmark in `shipped/`, made by `benchmarks/baselines.py`: a row per image, and per method and
seed a column `p:METHOD:SEED` (P(referable), the mean over posterior samples, float32) and, of methods with an uncertainty of their
own, `u:METHOD:SEED`. Labels and patients are those of the definition.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from retinabench.core.errors import QUIET, InputError, Progress, nearest, printable
from retinabench.core.files import write_bytes
from retinabench.core.results import JsonObject, json_content
from retinabench.data.frozen.definition import FrozenBenchmark, benchmark_names, frozen_benchmark, truth_of
from retinabench.metrics.comparison import RankedModel, ScoreRanking, SetRanking, rank_methods
from retinabench.metrics.registry import SCORES as SPECS
from retinabench.predictions.io import find_files, read_predictions
from retinabench.predictions.table import Predictions, method_names
from retinabench.reports.leaderboard import submission
from retinabench.reports.leaderboard.submission import Card, Kind, Submission, as_seed, check_size, checked

SHIPPED = Path(__file__).parent / "shipped"
KEY = b"retinabench.baselines"
# The scores of the board, in the order of its columns.
SCORES = (
    "referral_accuracy_area", "referral_auroc_area", "auroc", "accuracy", "nll", "brier", "failure_auroc", "aurc",
    "ood_auroc",
)  # fmt: skip
SCHEMA = "retinabench.board/1"


Seed = TypeVar("Seed")


@dataclass(frozen=True, eq=False)
class Entry(Generic[Seed]):
    """A method on a board: what tables call it, where it comes from, what it handed in for each seed, and what readers must know."""

    title: str
    kind: Kind
    seeds: Sequence[Seed]
    notes: tuple[str, ...] = ()


Entered = TypeVar("Entered", bound=Entry[Any])


@dataclass(frozen=True, eq=False)
class Board(Generic[Entered]):
    """The entries of one benchmark or fidelity target by key; by set of images, or group of points, their values and ranks."""

    entries: Mapping[str, Entered]
    sets: Mapping[str, SetRanking]

    @property
    def competitors(self) -> list[Entered]:
        return [entry for entry in self.entries.values() if entry.kind != "trivial"]

    @property
    def here(self) -> set[str]:
        """Titles of the entries that did not come with the package, where others did."""
        own = {entry.title for entry in self.competitors if entry.kind != "baseline"}
        return own if len(own) < len(self.competitors) else set()

    def value(self, key: str, name: str, score: str) -> RankedModel:
        return self.sets[name][score].models[key]

    def scores(self, key: str, name: str) -> dict[str, RankedModel]:
        return {score: found.models[key] for score, found in self.sets[name].scores.items()}


@dataclass(frozen=True, eq=False)
class MethodEntry(Entry[Predictions]):
    """A method on the board of a benchmark, with its card."""

    card: Card = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class BenchmarkBoard(Board[MethodEntry]):
    """The board of a frozen benchmark."""

    benchmark: FrozenBenchmark

    def to_dict(self) -> JsonObject:
        return {
            "benchmark": self.benchmark.name,
            "listing_sha256": self.benchmark.listing_sha256,
            "entries": {
                key: {
                    "kind": entry.kind,
                    "seeds": [one.metadata.get("seed") for one in entry.seeds],
                    "card": entry.card.model_dump(mode="json"),
                    "notes": list(entry.notes),
                }
                for key, entry in self.entries.items()
            },
            "sets": {
                part: {
                    **{name: getattr(found, name) for name in ("images", "patients", "positives")},
                    "scores": {score: _score_json(score, ranking) for score, ranking in found.scores.items()},
                }
                for part, found in self.sets.items()
            },
        }


def _score_json(score: str, ranking: ScoreRanking) -> JsonObject:
    methods = {}
    for key in ranking.order():
        model = ranking.models[key]
        numbers = json_content({name: getattr(model, name) for name in ("value", "low", "high", "error")})
        methods[key] = {**numbers, "rank": model.best or None, "worst": model.worst or None}
    return {
        "direction": ranking.direction,
        "version": SPECS[score].version,
        "methods": methods,
        "pairs": json_content(ranking.pairs),
    }


def make_boards(
    entries: Sequence[Submission],
    names: Sequence[str] = (),
    *,
    scores: Sequence[str] = SCORES,
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress = QUIET,
) -> list[BenchmarkBoard]:
    """Rank entries, with the baselines of each benchmark among them, on one board per benchmark that has an entry.

    `names` are the benchmarks, by default all. Without replicates over patients nothing is resolved. Two entries of one name are
    refused.
    """
    if twice := [name for name, count in Counter(e.card.name for e in entries).items() if count > 1]:
        raise InputError(f"two submissions are named '{twice[0]}'", hint="Change the name on one card.")
    boards = []
    chosen = [frozen_benchmark(name) for name in names or benchmark_names()]
    with progress.track("Ranking", len(chosen), unit="benchmarks") as advance:
        for benchmark in chosen:
            own = [*baselines_of(benchmark.name), *(e for e in entries if benchmark.name in e.predictions)]
            count, made = Counter(entry.card.title for entry in own), {}
            for one in own:
                title = one.card.title if count[one.card.title] == 1 else f"{one.card.title} ({one.card.name})"
                made[one.key] = MethodEntry(title, one.kind, one.predictions[benchmark.name], one.notes, card=one.card)
            if made:
                sets = [*benchmark.sets, *(["joint"] if len(benchmark.sets) > 1 else [])]
                predictions = {key: entry.seeds for key, entry in made.items()}
                ranked, _ = rank_methods(predictions, bootstrap, seed, scores=scores, sets=sets)
                boards.append(BenchmarkBoard(made, ranked, benchmark))
            advance(1)
    return boards


def known_score(score: str) -> str:
    if score not in SCORES:
        raise InputError(f"'{score}' is not a score of the board", hint=nearest(score, SCORES))
    return score


def read_entries(paths: Sequence[Path], benchmark: str | None = None) -> list[Submission]:
    folders = {path: submission.find_submissions(path) if path.is_dir() else [] for path in paths}
    entries = [submission.read_submission(folder) for submissions in folders.values() for folder in submissions]
    files = [path for path in paths if not folders[path]]
    return [*entries, *(entries_of_files(find_files(files), benchmark) if files else [])]


def entries_of_files(files: Sequence[Path], benchmark: str | None = None) -> list[Submission]:
    """Return bare predictions files as entries, which no card describes; those of one method are its seeds."""
    for file in files:
        check_size(file)
    predictions = [read_predictions(file) for file in files]
    by_title: dict[str, list[Predictions]] = {}
    for title, one in zip(method_names(files, predictions), predictions, strict=True):
        by_title.setdefault(title, []).append(one)
    entries = []
    for number, (title, seeds) in enumerate(by_title.items()):
        name = benchmark or _benchmark_of(seeds[0])
        found = [as_seed(checked(one, frozen_benchmark(name)), title, one.metadata.get("seed")) for one in seeds]
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-")
        card = Card(
            name=f"file-{number}-{slug}".rstrip("-"), title=printable(re.sub(r"[^ -~\u00a1-\u024f]", "?", title), 200),
            method="A predictions file without a card.", authors="not stated", code="", compute="not stated", hours=0,
            pretrained=False, tuned_on="validation",
        )  # fmt: skip
        entries.append(Submission(card, "file", {name: tuple(found)}))
    return entries


def _benchmark_of(predictions: Predictions) -> str:
    own = np.sort(predictions.image_id[predictions.split == "test"])
    for name in benchmark_names():
        truth = truth_of(name)
        if np.array_equal(own, truth.image_id[truth.test]):
            return name
    hint = f"Name the one it was meant for by --benchmark: {', '.join(benchmark_names())}."
    raise InputError("holds the test images of no benchmark", file=predictions.source, hint=hint)


def write_baselines(benchmark: FrozenBenchmark, baselines: Sequence[tuple[Card, int, Predictions]]) -> Path:
    """Write the baselines of a benchmark into the package: card, seed and `checked` predictions of each."""
    ids, split = baselines[0][2].image_id, baselines[0][2].split
    columns: dict[str, Any] = {"image_id": ids, "split": split}
    for card, seed, one in baselines:
        if not np.array_equal(one.image_id, ids):
            raise InputError(f"{card.name}, seed {seed}, predicts other images")
        columns[f"p:{card.name}:{seed}"] = one.prob.astype(np.float32)
        if one.uncertainty is not None:
            columns[f"u:{card.name}:{seed}"] = one.uncertainty.astype(np.float32)
    cards = {card.name: card.model_dump(mode="json") for card, *_ in baselines}
    about = json.dumps(list(cards.values()), sort_keys=True).encode()
    table, sink = pa.table(columns).replace_schema_metadata({KEY: about}), io.BytesIO()
    numbers = [name for name in columns if name[:2] in ("p:", "u:")]
    pa.parquet.write_table(
        table, sink, compression="zstd", use_dictionary=["split"], use_byte_stream_split=numbers, write_statistics=False
    )
    write_bytes(SHIPPED / f"{benchmark.name}.parquet", sink.getvalue())
    return SHIPPED / f"{benchmark.name}.parquet"


@cache
def baselines_of(name: str) -> tuple[Submission, ...]:
    """Return the baselines of a benchmark, one entry per method in the order of the file; empty where none come with the package."""
    file = SHIPPED / f"{name}.parquet"
    if not file.is_file():
        return ()
    table, truth = pyarrow.parquet.read_table(file), truth_of(name)
    ids, split = (table[column].to_numpy().astype(np.str_) for column in ("image_id", "split"))
    rows = np.searchsorted(truth.image_id, ids)
    known = {name: getattr(truth, name)[rows] for name in ("label", "grade", "patient_id", "domain")}
    entries = []
    for content in json.loads(table.schema.metadata[KEY]):
        card = Card(**content)
        prefix, seeds = f"p:{card.name}:", []
        for column in (column for column in table.column_names if column.startswith(prefix)):
            own = f"u:{column[2:]}"
            uncertainty = np.asarray(table[own], np.float64) if own in table.column_names else None
            probs = np.asarray(table[column], np.float64)
            one = Predictions(ids, probs=probs, split=split, uncertainty=uncertainty, **known)
            seeds.append(as_seed(one, card.title, int(column.removeprefix(prefix))))
        entries.append(Submission(card, "baseline", {name: tuple(seeds)}))
    return tuple(entries)
