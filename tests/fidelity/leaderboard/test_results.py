"""Boards as typed results."""

from __future__ import annotations

from pathlib import Path

from retinabench.fidelity.leaderboard.results import Board, RankedDivision, RankedEntry, Refused
from retinabench.fidelity.leaderboard.scores import Rank
from retinabench.reports.toolkit.number_format import Quantity


def test_divisions_are_ordered_by_track_then_tier():
    divisions = [
        RankedDivision("open", 100),
        RankedDivision("stated"),
        RankedDivision("stated", 1000),
        RankedDivision("stated", 100),
    ]
    ordered = sorted(divisions, key=lambda one: one.key)
    assert [one.short for one in ordered] == [
        "stated, up to 100", "stated, up to 1,000", "stated, no tier", "open, up to 100",
    ]  # fmt: skip


def test_a_board_is_plain_json():
    ranked = RankedEntry(
        "x", Rank(Quantity(1.5), (1, 2)), {"agreement": 1.0}, 2, RankedDivision("stated", 100)
    )
    content = Board([], [ranked], [Refused(Path("a.npz"), "is a \x07 file")]).to_dict()
    assert list(content) == ["schema", "tasks", "ranking", "refused"]
    assert content["ranking"] == [
        {
            "title": "x", "rank": 1.5, "low": None, "high": None, "best": 1, "worst": 2,
            "by_measure": {"agreement": 1.0}, "tasks": 2, "division": {"track": "stated", "tier": 100},
        }
    ]  # fmt: skip
    assert content["refused"] == [{"file": "a.npz", "why": "is a \\x07 file"}]
