"""What the terminal shows of a study."""

from pathlib import Path

import pytest

from retinabench.experiments.engines.jobs import State
from retinabench.experiments.study.console import (
    duration,
    plan_lines,
    plan_table,
    size,
    status_lines,
    status_table,
)
from retinabench.experiments.study.cost_plan import CostPlan, PlanLine
from retinabench.experiments.study.outcomes import RunRecord
from retinabench.experiments.study.status import MethodStatus, Status
from support.studies import study


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3.25, "3.2 s"),
        (89, "89 s"),
        (90, "1.5 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (172800, "2.0 days"),
        (172799, "48 h"),
    ],
)
def test_times_are_written_in_the_unit_that_suits(seconds, text):
    assert duration(seconds) == text


def test_sizes():
    assert (size(12.4e6), size(999.6e6), size(3.4e9)) == ("12 MB", "1000 MB", "3.4 GB")


def plan(folder, **changes):
    lines = [
        PlanLine("country_shift", "map", 4, 2, 1, 3600.0, 10**6, 10**6),
        PlanLine("country_shift", "dropout", 0, 3, 0, 60.0, 10**6, 0),
    ]
    given = {
        "study": study(folder, Path("d")), "lines": lines, "device": "cpu", "parallel": 2, "drawn_bytes": 0,
        "free_bytes": 10**9, "images_per_second": None,
    }  # fmt: skip
    return CostPlan(**given | changes)


def cells_of(table):
    return [
        [row.label, *(str(cell.content) for cell in row.cells)]
        for block in table.blocks
        for row in block.rows
    ]


def test_a_plan_is_summed_over_what_is_left(tmp_path):
    rows = cells_of(plan_table(plan(tmp_path)))
    assert rows[0] == ["country_shift", "map", "4", "2", "1", "5", "60 min", "5", "6 MB"]
    assert rows[-1][:6] == ["all", "", "4", "5", "1", "8"]
    text = list(plan_lines(plan(tmp_path)))
    assert text[0].startswith("8 runs, 5.05 CPU-hours, with 2 at once: about 2.5 h;")
    assert "Estimated by a probe on cpu" in text[1]
    assert list(plan_lines(plan(tmp_path, free_bytes=10)))[-1] == "The free disk space is not sufficient."


def failed(state: State):
    return RunRecord("map seed 1", state, 3.0, 2, "it broke", 0.0, "logs/1.txt")


def test_a_status_counts_and_names_what_failed():
    line = MethodStatus(
        "country_shift", "map", seconds=120.0, failures=[("map seed 1", failed("out_of_memory"))]
    )
    line.trials.update(done=3, left=1)
    line.runs.update(failed=1, left=2)
    status = Status([line], None, None, finished=False)
    (row,) = cells_of(status_table(status))
    assert row == ["country_shift", "map", "3 / 0 / 0 / 1", "0 / 0 / 1 / 2", "2.0 min", "0.1"]
    assert list(status_lines(status)) == [
        "country_shift, map seed 1: out of memory: it broke (log: logs/1.txt)",
        "no process is at work: 3 runs left; the same command without --status continues",
    ]
    line.trials.clear()
    line.runs.clear()
    assert list(status_lines(Status([line], None, None, finished=True)))[-1] == "finished: see summary.md"
