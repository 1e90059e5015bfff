"""Rows, matrices and terminal tables of a board: what pages and terminal show of its standings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from retinabench.metrics.comparison.standings import Standing
from retinabench.metrics.registry import SCORES as SPECS
from retinabench.metrics.score_spec import ScoreSpec
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.leaderboard.board import BenchmarkBoard
from retinabench.reports.leaderboard.card import Card
from retinabench.reports.leaderboard.submission import Kind
from retinabench.reports.toolkit.number_format import THREE_DIGITS, Quantity, p_value
from retinabench.reports.toolkit.renderers import cell_html
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

TERMINAL = ("referral_accuracy_area", "auroc", "accuracy", "nll")
KINDS = {"baseline": "baseline", "submission": "submission", "file": "your file"}


@dataclass(frozen=True)
class SortableCell:
    """A cell of a sortable table: its content and the number that orders it, empty where it is undefined."""

    content: Markup
    order: str


@dataclass(frozen=True)
class MethodRow:
    """A method in a table of a benchmark: its card, the range of its rank, and a cell per score.

    Args:
        key: Name of its page.
        title: What tables call it.
        kind: Where it comes from.
        card: What it says of itself.
        ranks: The range of its rank by the primary score, such as `1–4`.
        order: The number that orders the ranks.
        cells: One per score.
    """

    key: str
    title: str
    kind: Kind
    card: Card
    ranks: str
    order: str
    cells: tuple[SortableCell, ...]


@dataclass(frozen=True)
class PairCell:
    """A pair of two methods: `better`, `worse`, `tie` or `self`, and a sentence."""

    state: str
    sign: str
    text: str


def rank_text(standing: Standing) -> str:
    """Return the range of a rank, such as `1–4`; a dash where the score is undefined."""
    if not standing.rank:
        return "–"
    return str(standing.rank) if standing.rank == standing.worst else f"{standing.rank}–{standing.worst}"


def score_cell(standing: Standing, *, below: str = "") -> Cell:
    """Return the cell of a score: the value with its interval and, of several seeds, its standard error."""
    return Cell.number(standing.value, standing.low, standing.high, standing.error, below=below)


def specs_of(board: BenchmarkBoard, name: str) -> list[ScoreSpec]:
    """Return the scores that a set has, the primary one first."""
    names = sorted(board.sets[name].scores, key=lambda score: score != board.benchmark.primary)
    return [SPECS[score] for score in names]


def method_rows(board: BenchmarkBoard, name: str) -> list[MethodRow]:
    """Return the methods on a set, the best first by the primary score."""
    specs, rows = specs_of(board, name), []
    for key, standing in board.first(name).methods.items():
        entry = board.entries[key]
        cells = []
        for spec in specs:
            own = board.sets[name][spec.name].methods[key]
            below = f"rank {rank_text(own)}" if own.rank else ""
            order = f"{own.value:.12g}" if math.isfinite(own.value) else ""
            cells.append(SortableCell(cell_html(score_cell(own, below=below)), order))
        order = str(standing.rank * 1000 + standing.worst) if standing.rank else ""
        rows.append(
            MethodRow(
                key, board.titles[key], entry.kind, entry.card, rank_text(standing), order, tuple(cells)
            )
        )
    return rows


def pair_matrix(board: BenchmarkBoard, name: str, score: str) -> list[tuple[str, str, list[PairCell]]]:
    """Return key, title and pairs of every method; rows and columns have the order of the ranking.

    Args:
        board: The benchmark.
        name: The set.
        score: The score that ranks.
    """
    found = board.sets[name][score]
    pairs = {(one.a, one.b): one for one in found.pairs}
    better = found.better()
    rows = []
    for a in found.methods:
        cells = []
        for b in found.methods:
            if a == b:
                cells.append(PairCell("self", "", ""))
                continue
            one, sign = (pairs[a, b], 1) if (a, b) in pairs else (pairs[b, a], -1)
            state = "better" if (a, b) in better else "worse" if (b, a) in better else "tie"
            text = _difference_text(
                sign * one.difference, sorted((sign * one.low, sign * one.high)), one.p_holm
            )
            cells.append(PairCell(state, {"better": "▲", "worse": "▽", "tie": "·"}[state], text))
        rows.append((a, board.titles[a], cells))
    return rows


def _difference_text(difference: float, ends: Sequence[float], p: float) -> str:
    quantity = Quantity(difference, ends[0], ends[1])
    form = quantity.form(THREE_DIGITS)
    interval = form.interval(ends[0], ends[1])
    return f"{form(difference)} {interval}, p {p_value(p)}" if interval else form(difference)


def ranking_table(board: BenchmarkBoard, name: str, score: str) -> Table:
    """Return the table of a set for the terminal, ordered by a score.

    Args:
        board: The board.
        name: The set.
        score: The score.
    """
    ranked = board.sets[name][score]
    others = [key for key in (score, *TERMINAL) if key in board.sets[name].scores]
    specs = [SPECS[key] for key in dict.fromkeys(others)][:4]
    columns = [Column("rank"), *(Column(spec.label, direction=spec.direction) for spec in specs)]
    rows = []
    for key, standing in ranked.methods.items():
        cells = [Cell(rank_text(standing))]
        cells += [score_cell(board.sets[name][spec.name].methods[key]) for spec in specs]
        kind = board.entries[key].kind
        label = board.titles[key] if kind == "baseline" else f"{board.titles[key]} ({KINDS[kind]})"
        rows.append(Row(label, cells, control=False))
    found = board.sets[name]
    caption = f"{board.benchmark.name}, {SET_LABELS[name].lower()}: {found.images:,} images, {found.positives:,} referable"
    note = "Ranks of methods that cannot be told apart are ranges (p < 0.05 by Holm's correction over all pairs)."
    return Table.of(caption, columns, rows, note=note)


def scores_table(board: BenchmarkBoard, key: str) -> Table:
    """Return all scores of one method, a row per score and a column per set."""
    sets = list(board.sets)
    names = list(dict.fromkeys(score for name in sets for score in board.sets[name].scores))
    rows = []
    for score in names:
        cells = []
        for name in sets:
            found: Mapping[str, Standing] = (
                board.sets[name][score].methods if score in board.sets[name].scores else {}
            )
            cells.append(
                score_cell(found[key], below=f"rank {rank_text(found[key])}") if key in found else Cell("–")
            )
        rows.append(Row(SPECS[score].heading, cells))
    columns = [Column(SET_LABELS[name]) for name in sets]
    return Table.of(f"{board.benchmark.title}: all scores", columns, rows, row_header="score")
