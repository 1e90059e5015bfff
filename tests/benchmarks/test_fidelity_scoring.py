"""The timing script runs, at toy size; its figures are for an idle machine and are not looked at."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import fidelity_scoring


def test_the_scoring_benchmark_runs(capsys):
    examiner, answers = fidelity_scoring.inputs(80)
    found = examiner.grade(answers)
    assert set(found) == {"all", "clean", "noise", *(f"noise {k}" for k in range(1, 6))}
    fidelity_scoring.main(["--points", "80"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("80 points, 10 classes, 1000 replicates, 8 groups")
    assert "times one file" in lines[-1]
