"""Figures 2 to 4 of the publication as files, with the numbers of the synthetic examinees."""

from __future__ import annotations

import json

from retinabench.concepts.questioning.strategy_comparison import compare_strategies
from retinabench.concepts.report.paper_figures import PUBLISHED, write_figures
from retinabench.concepts.report.snapshot import snapshot
from support.examinees import examinee


def test_three_figures_and_their_numbers_are_written(bank, found, tmp_path):
    who = examinee(bank)
    comparison = compare_strategies(bank, lambda _: who, repetitions=2, questions=12)
    state = snapshot(bank, who, ("random", "precision"))
    files = write_figures(found.examination, comparison, state, tmp_path, questions=12, seed=0, reading="std")
    assert {file.stem for file in files} == {"figure-2", "figure-3", "figure-4"}
    assert all(file.stat().st_size > 1000 for file in files)
    numbers = json.loads((tmp_path / "synthetic.json").read_text())
    assert set(numbers) == set(PUBLISHED)
    for one in numbers.values():
        assert one["repetitions"] == 2
        assert one["questions"][-1] == 12
        assert list(one["strategies"]) == list(comparison.strategies)
    drawn = next(file for file in files if file.name == "figure-2.svg").read_text()
    assert "<svg" in drawn

    again = write_figures(
        found.examination, comparison, None, tmp_path / "few", questions=12, seed=0, reading="std"
    )
    assert {file.stem for file in again} == {"figure-2", "figure-4"}
