"""The pages of the site as text, from templates; everything that a submission says is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retinabench.metrics.registry import SCORES as SPECS
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.leaderboard import figures, rows
from retinabench.reports.leaderboard.board import BenchmarkBoard
from retinabench.reports.leaderboard.gallery import Failure, failures
from retinabench.reports.leaderboard.printed import PrintedMethod, printed_tables, table_2019
from retinabench.reports.leaderboard.submission import Entry
from retinabench.reports.toolkit.pages import Fact, render
from retinabench.reports.toolkit.renderers import cell_html
from retinabench.reports.toolkit.style import LegendEntry, Mark, Panel
from retinabench.reports.toolkit.tables import Table

PACKAGE = "retinabench.reports.leaderboard"
REFERENCE = "map"  # whose curves stand beside those of every method


@dataclass(frozen=True)
class SetSection:
    """A set on a benchmark's page.

    Args:
        name: The set.
        label: What readers call it.
        counts: How many images it has.
        scores: Name and heading of each score, the primary one first.
        rows: The methods.
    """

    name: str
    label: str
    counts: str
    scores: list[tuple[str, str]]
    rows: list[rows.MethodRow]


@dataclass(frozen=True)
class MethodSection:
    """A benchmark on a method's page."""

    board: BenchmarkBoard
    table: Table
    legend: list[LegendEntry]
    panels: list[Panel]
    failures: list[Failure]
    downloads: list[tuple[str, str]]


def index_page(boards: Sequence[BenchmarkBoard]) -> str:
    """Return the first page: every benchmark with its standings by the primary score."""
    sections = [(board, _section(board, next(iter(board.sets)))) for board in boards]
    return _render("index.html.j2", title="Leaderboard", sections=sections, root="")


def benchmark_page(board: BenchmarkBoard) -> str:
    """Return the page of a benchmark: a sortable table per set."""
    return _render(
        "benchmark.html.j2",
        title=board.benchmark.title,
        board=board,
        sections=[_section(board, name) for name in board.sets],
        kinds=rows.KINDS,
        root="../",
    )


def pairs_page(board: BenchmarkBoard, name: str, score: str) -> str:
    """Return the page of one ranking: ranks and all pairwise differences.

    Args:
        board: The benchmark.
        name: The set.
        score: The score.
    """
    spec = SPECS[score]
    ranked = board.sets[name][score]
    standing = [
        (key, board.titles[key], rows.rank_text(one), cell_html(rows.score_cell(one)))
        for key, one in ranked.methods.items()
    ]
    return _render(
        "pairs.html.j2",
        title=f"{board.benchmark.title}: {spec.label}, {SET_LABELS[name].lower()}",
        board=board,
        spec=spec,
        standing=standing,
        resolved=len(ranked.better()),
        pairs=len(ranked.pairs),
        matrix=rows.pair_matrix(board, name, score),
        root="../",
    )


def method_page(key: str, boards: Sequence[BenchmarkBoard], shown: Mapping[str, Sequence[Failure]]) -> str:
    """Return the page of a method.

    Args:
        key: Its key.
        boards: The benchmarks that it is on.
        shown: Benchmark -> its failures.
    """
    entry = boards[0].entries[key]
    sections = [_method_section(board, key, shown[board.benchmark.name]) for board in boards]
    return _render(
        "method.html.j2",
        title=boards[0].titles[key],
        entry=entry,
        key=key,
        kind=rows.KINDS[entry.kind],
        facts=_facts(entry, boards),
        sections=sections,
        root="../",
    )


def printed_page(boards: Sequence[BenchmarkBoard], summaries: Sequence[PrintedMethod]) -> str:
    """Return the page of printed values."""
    tables = [table_2019(name, boards, summaries) for name in ("in_domain", "shifted")]
    return _render(
        "printed.html.j2",
        title="Printed values",
        tables=[*tables, *printed_tables()],
        summaries=summaries,
        root="",
    )


def failures_of(board: BenchmarkBoard, key: str, *, shown: bool) -> list[Failure]:
    """Return the failures of a method's first seed on all sets of a benchmark.

    Args:
        board: The benchmark.
        key: The method.
        shown: Whether there are images.
    """
    first = board.entries[key].predictions[board.benchmark.name][0]
    return [one for name in board.benchmark.sets for one in failures(first, name, shown=shown)]


def _render(template: str, **context: Any) -> str:
    return render(template, context, package=PACKAGE)


def _section(board: BenchmarkBoard, name: str) -> SetSection:
    found = board.sets[name]
    patients = "" if found.patients is None else f" of {found.patients:,} patients"
    return SetSection(
        name,
        SET_LABELS[name],
        f"{found.images:,} images{patients}, {found.positives:,} referable",
        [(spec.name, spec.heading) for spec in rows.specs_of(board, name)],
        rows.method_rows(board, name),
    )


def _method_section(board: BenchmarkBoard, key: str, shown: Sequence[Failure]) -> MethodSection:
    name = board.benchmark.name
    sets: tuple[str, ...] = board.benchmark.sets
    seeds = board.entries[key].predictions[name]
    reference = next(
        (e for e in board.entries.values() if e.kind == "baseline" and e.card.name == REFERENCE), None
    )
    others = (
        {}
        if reference is None or reference.key == key
        else {part: figures.curves_of(reference.predictions[name], part) for part in sets}
    )
    ours = {part: figures.curves_of(seeds, part) for part in sets}
    marks = figures.set_marks(sets)
    legend = [LegendEntry(SET_LABELS[part], marks[part]) for part in sets]
    if others:
        legend += [LegendEntry(f"MAP, {SET_LABELS[part].lower()}", Mark(marks[part].hue, 2)) for part in sets]
    return MethodSection(
        board,
        rows.scores_table(board, key),
        legend,
        figures.panels(ours, others, name),
        list(shown),
        [
            (f"predictions/{key}/{name}/seed-{one.metadata['seed']}.parquet", f"seed {one.metadata['seed']}")
            for one in seeds
        ],
    )


def _facts(entry: Entry, boards: Sequence[BenchmarkBoard]) -> list[Fact]:
    card = entry.card
    seeds = ", ".join(f"{len(entry.predictions[b.benchmark.name])} on {b.benchmark.title}" for b in boards)
    return [
        Fact("By", card.authors),
        Fact("Computed on", f"{card.compute}; {card.hours:.3g} hours per seed"),
        Fact("Further data", "; ".join(card.data) or "none"),
        Fact("Pretrained weights", "yes" if card.pretrained else "no"),
        Fact("Networks per prediction", str(card.ensemble)),
        Fact(
            "Settings chosen on",
            {"nothing": "nothing, they are defaults"}.get(card.tuned_on, f"{card.tuned_on} images"),
        ),
        Fact("Seeds", f"{seeds}{', without randomness' if card.deterministic else ''}"),
    ]
