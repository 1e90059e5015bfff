"""Tables of a board show ranges of ranks, and every pair from both sides."""

from __future__ import annotations

from retinabench.metrics.comparison.standings import Standing
from retinabench.reports.leaderboard import rows
from support.board_entries import NAME


def test_a_rank_that_is_not_resolved_is_a_range() -> None:
    assert rows.rank_text(Standing(0.5, rank=2, worst=5)) == "2–5"
    assert rows.rank_text(Standing(0.5, rank=3, worst=3)) == "3"
    assert rows.rank_text(Standing(float("nan"))) == "–"


def test_the_matrix_is_antisymmetric_and_has_the_order_of_the_ranking(board) -> None:
    found = rows.pair_matrix(board, "in_domain", "auroc")
    assert [key for key, _, _ in found] == list(board.sets["in_domain"]["auroc"].methods)
    opposite = {"better": "worse", "worse": "better", "tie": "tie", "self": "self"}
    for i, (_, _, cells) in enumerate(found):
        for j, cell in enumerate(cells):
            assert found[j][2][i].state == opposite[cell.state]
            assert (cell.state == "self") == (i == j)


def test_tables_hold_every_method_and_score(board) -> None:
    table = rows.ranking_table(board, "shifted", "auroc")
    assert len(table.blocks[0].rows) == len(board.entries)
    assert table.blocks[0].columns[1].label == "AUROC", "the score that ranks comes first"
    own = rows.scores_table(board, next(iter(board.entries)))
    assert len(own.blocks[0].rows) == 3
    first = rows.method_rows(board, "joint")[0]
    assert len(first.cells) == len(rows.specs_of(board, "joint"))
    assert rows.specs_of(board, "joint")[0].name == board.benchmark.primary
    assert board.benchmark.name == NAME
