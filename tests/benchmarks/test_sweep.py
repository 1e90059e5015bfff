"""The simulation of huge sweeps runs, at toy size; its figures are for an idle machine and are not looked at."""

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import sweep


def figures(text):
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[1:]}


def test_every_line_of_the_simulation_has_a_figure(monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["sweep.py", "--runs", "40", "--trials", "30", "--nodes", "5", "--measured", "2"]
    )
    monkeypatch.setattr(shutil, "which", lambda name: None)
    sweep.main()
    found = figures(capsys.readouterr().out)
    assert len(found) == 10
    assert all(re.match(r"\d", row[0]) for row in found.values())


@pytest.mark.slow
def test_a_table_costs_few_calls_whatever_the_number_of_runs(tmp_path):
    """Counted by strace: a few dozen calls, against several for each run."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    values = [[k, 0, 0, 0] for k in range(300)]
    sweep.write_rows(tmp_path / "results", values)
    sweep.make_folders(tmp_path / "runs", values)
    assert [row.scores[sweep.SCORE] for row in sweep.list_and_rank(tmp_path)][:2] == [299, 298]
    assert sweep.counted("list", tmp_path) < 60
    assert sweep.counted("each", tmp_path) > 5 * 300
