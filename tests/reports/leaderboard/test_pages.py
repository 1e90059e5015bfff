"""Pages say what their entries are, and link to nothing that a stranger could choose but https."""

from __future__ import annotations

from retinabench.reports.leaderboard import pages


def test_a_method_s_page_shows_card_numbers_and_failures(board) -> None:
    key = next(key for key in board.entries if key.startswith("noise-"))
    name = board.benchmark.name
    text = pages.method_page(key, [board], {name: pages.failures_of(board, key, shown=False)})
    for expected in (
        "A. Stranger",
        'href="https://example.org/noise"',
        "Wrong with the least uncertainty",
        "seed 2",
        key,
    ):
        assert expected in text
    assert "javascript:" not in text


def test_the_index_names_every_benchmark_and_link(board) -> None:
    text = pages.index_page([board])
    assert board.benchmark.title in text
    assert "printed.html" in text
    assert "Table 1" in pages.printed_page([board], [])


def test_a_ranking_says_how_many_pairs_are_resolved(board) -> None:
    text = pages.pairs_page(board, "in_domain", "auroc")
    assert "of 6 pairs are resolved" in text
    assert pages.benchmark_page(board).count('<table class="board"') == 3
