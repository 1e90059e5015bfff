"""The plan of a study: its runs, their time and their disk space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retinabench.experiments.execution import Resources
from retinabench.experiments.study import console
from retinabench.experiments.study.cost_plan import make_plan
from support.studies import study


def test_a_plan_names_all_runs_and_writes_nothing(tmp_path):
    definition = study(
        tmp_path, Path("unused"), tasks={"country_shift": {"draw": {"images": 64, "size": 16}}}
    )
    plan = make_plan(definition, tmp_path / "out", Resources("cpu"), 2, 1)
    assert not (tmp_path / "out").exists()
    assert [(line.trials, line.runs, line.done, line.left) for line in plan.lines] == [(2, 2, 0, 4)] * 2
    assert all(0 < line.seconds < 60 for line in plan.lines)
    assert plan.drawn_bytes == 128 * 3 * 16**2
    assert plan.bytes > plan.drawn_bytes
    text = "\n".join(console.plan_lines(plan))
    assert "8 runs" in text
    assert "with 2 at once" in text
    console.plan_table(plan)


def test_a_plan_counts_what_is_done(finished):
    root, definition, engine, _ = finished
    plan = make_plan(definition, root / "out", Resources("cpu"), None, 1)
    assert sum(line.done for line in plan.lines) == len(engine.computed)
    # Bytes are foretold within a fifth.
    for line in plan.lines:
        runs = root / "out" / line.task / line.method / "runs"
        sizes = [sum(f.stat().st_size for f in folder.iterdir()) for folder in runs.glob("*-seed-*")]
        assert line.bytes - 50_000 == pytest.approx(np.mean(sizes), rel=0.2)
