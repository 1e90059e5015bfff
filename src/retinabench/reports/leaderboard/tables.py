"""Tables of a board: rows, pairs and terminal tables, and values that others printed beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from retinabench.metrics.comparison import RankedModel, RankedPair, rank_methods
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.registry import SCORES as SPECS
from retinabench.metrics.registry import ScoreSpec
from retinabench.reports.leaderboard.board import BenchmarkBoard
from retinabench.reports.toolkit import tables as toolkit
from retinabench.reports.toolkit.printed import printed_tables
from retinabench.reports.toolkit.tables import THREE_DIGITS, Cell, Column, NumberFormat, Quantity, Row, Table, cell_html

TERMINAL = ("referral_accuracy_area", "auroc", "accuracy", "nll")
KINDS = {"baseline": "baseline", "submission": "submission", "file": "your file"}
SIGNS = {"better": "▲", "worse": "▽", "tie": "·", "self": ""}
PERCENT = NumberFormat(1, scale=100)
TITLES_2019 = {
    "deterministic": "Deterministic", "mc_dropout": "MC dropout", "mfvi": "MFVI", "deep_ensemble": "Deep ensemble",
    "ensemble_mc_dropout": "Ensemble MC dropout", "random": "Random referral",
}  # fmt: skip


def rank_text(best: int, worst: int) -> str:
    if not best:
        return "–"
    return str(best) if best == worst else f"{best}–{worst}"


def score_cell(model: RankedModel, *, with_rank: bool = False) -> Cell:
    below = f"rank {rank_text(model.best, model.worst)}" if with_rank and model.best else ""
    return Cell.number(model.value, model.low, model.high, model.error, below=below)


def specs_of(board: BenchmarkBoard, name: str) -> list[ScoreSpec]:
    names = sorted(board.sets[name].scores, key=lambda score: score != board.benchmark.primary)
    return [SPECS[score] for score in names]


def method_rows(board: BenchmarkBoard, name: str) -> list[dict[str, Any]]:
    """The best method first; a cell is its HTML and the number that orders it, empty where it is undefined."""
    found, rows = board.sets[name], []
    first = found[board.benchmark.primary]
    for key in first.order():
        models = [found[spec.name].models[key] for spec in specs_of(board, name)]
        cells = [cell_html(score_cell(one, with_rank=True)) for one in models]
        exact = [f"{one.value:.12g}" if math.isfinite(one.value) else "" for one in models]
        best, worst = first.models[key].best, first.models[key].worst
        rows.append({
            "key": key, "entry": board.entries[key], "ranks": rank_text(best, worst),
            "order": str(best * 1000 + worst) if best else "", "cells": list(zip(cells, exact, strict=True)),
        })  # fmt: skip
    return rows


def pair_matrix(board: BenchmarkBoard, name: str, score: str) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Key, title and cells of each method in the order of the ranking; a cell is its state, sign and sentence."""
    ranking = board.sets[name][score]
    better, order = ranking.better(), ranking.order()
    rows = []
    for a in order:
        cells = []
        for b in order:
            state = "self" if a == b else "better" if (a, b) in better else "worse" if (b, a) in better else "tie"
            cells.append((state, SIGNS[state], "" if a == b else _pair_text(ranking.pair(a, b))))
        rows.append((a, board.entries[a].title, cells))
    return rows


def _pair_text(pair: RankedPair) -> str:
    form = Quantity(pair.difference, pair.low, pair.high).form(THREE_DIGITS)
    interval = form.interval(pair.low, pair.high)
    return (
        f"{form(pair.difference)} {interval}, p {toolkit.p_value(pair.p_holm)}" if interval else form(pair.difference)
    )


def ranking_table(board: BenchmarkBoard, name: str, score: str) -> Table:
    found = board.sets[name]
    specs = [SPECS[key] for key in dict.fromkeys((score, *TERMINAL)) if key in found.scores][:4]
    columns = [Column("rank"), *(Column(spec.label, direction=spec.direction) for spec in specs)]
    rows = []
    for key in found[score].order():
        model, kind = found[score].models[key], board.entries[key].kind
        cells = [Cell(rank_text(model.best, model.worst))]
        cells += [score_cell(found[spec.name].models[key]) for spec in specs]
        label = board.entries[key].title if kind == "baseline" else f"{board.entries[key].title} ({KINDS[kind]})"
        rows.append(Row(label, cells))
    counts = f"{found.images:,} images, {found.positives:,} referable"
    caption = f"{board.benchmark.name}, {SET_LABELS[name].lower()}: {counts}"
    note = "Ranks of methods that cannot be told apart are ranges (p < 0.05 by Holm's correction over all pairs)."
    return Table.of(caption, columns, rows, note=note)


def scores_table(board: BenchmarkBoard, key: str) -> Table:
    rows = []
    for score in dict.fromkeys(score for found in board.sets.values() for score in found.scores):
        models = [found[score].models[key] if score in found.scores else None for found in board.sets.values()]
        cells = [Cell("–") if one is None else score_cell(one, with_rank=True) for one in models]
        rows.append(Row(SPECS[score].heading, cells))
    columns = [Column(SET_LABELS[name]) for name in board.sets]
    return Table.of(f"{board.benchmark.title}: all scores", columns, rows, row_header="score")


def printed_page_tables(boards: Sequence[BenchmarkBoard]) -> list[Table]:
    found = [_table_2019(name, boards) for name in ("in_domain", "shifted")]
    return found + [printed_tables()[f"competition-2021-table-{number}"].table() for number in (2, 3)]


def _table_2019(name: str, boards: Sequence[BenchmarkBoard]) -> Table:
    printed = printed_tables()[f"filos-2019-{name.replace('_', '-')}"]
    columns = [Column(column.label, direction="higher") for column in printed.columns]
    rows = [Row(f"{TITLES_2019[key]}, printed", [Cell(text) for text in cells]) for key, cells in printed.rows.items()]
    for board in boards:
        if name in board.sets:
            rows += _our_rows(board, name, [column.measure for column in printed.columns])
    note = (
        "Printed: on the data of the paper, ± as printed. Ours: on other images, as named, ± the standard error over seeds; the rows of one "
        "data set compare with each other, not with those of another."
    )
    caption = f"{printed.source}, Table {printed.number}: {printed.caption}"
    return Table.of(caption, columns, rows, row_header="method", note=note)


def _our_rows(board: BenchmarkBoard, name: str, scores: Sequence[str]) -> Iterator[Row]:
    chosen = {key: e.seeds for key, e in board.entries.items() if e.kind == "baseline"}
    if not chosen:
        return
    ranked, _ = rank_methods(chosen, 0, 0, scores=scores, sets=[name])
    for key in board.sets[name][board.benchmark.primary].order():
        if key in chosen:
            models = [ranked[name][score].models[key] for score in scores]
            cells = [Cell.number(one.value, error=one.error, form=PERCENT) for one in models]
            yield Row(f"{board.entries[key].title}, on {board.benchmark.name}", cells)
