"""What the terminal shows of a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.scheduler import State
from retinabench.experiments.execution import Resources
from retinabench.experiments.study import console
from retinabench.experiments.study.console import (
    duration,
    plan_lines,
    plan_table,
    size,
    status_lines,
    status_table,
)
from retinabench.experiments.study.definition import read_study
from retinabench.experiments.study.plan import (
    ALLOWANCE,
    Cost,
    CostPlan,
    PlanLine,
    make_plan,
    prediction_bytes,
    stated_cost,
)
from retinabench.experiments.study.status import MethodStatus, Status, read_status
from retinabench.experiments.study.study import RunRecord
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


def test_a_plan_before_the_data_are_there_is_priced_from_a_stated_speed(tmp_path):
    """By hand: 35,126 training images, 10,906 that validate with one sample, 42,670 + 2,929 tested, also with shift."""
    words = ["trials=0", "tasks.country_shift.data=no/eyepacs", "tasks.country_shift.shifted=no/aptos"]
    definition = read_study("country", words)
    plan = make_plan(definition, tmp_path / "out", Resources("cpu"), None, 1, images_per_second=1000)
    seconds = {line.method: line.seconds for line in plan.lines}
    passes = 10_906 / 3
    predicted = 10_906 + 733 + 42_670 + 2_929
    assert seconds["map"] == pytest.approx((90 * (35_126 + passes) + predicted / 3) / 1000)
    assert seconds["dropout"] == pytest.approx((90 * (35_126 + passes) + 5 * predicted / 3) / 1000)
    assert seconds["fsvi"] == seconds["dropout"]  # its five draws of a step are of the last layer
    assert plan.lines[0].bytes > 4 * 23_000_000  # a ResNet-50
    lines = list(console.plan_lines(plan))
    assert "GPU-hours" in lines[0]
    assert lines[1].startswith("Priced at 1000 training images of MAP per second and GPU, as stated")
    with pytest.raises(
        InputError, match=r"tasks\.country_shift: the data are not prepared.*--images-per-second"
    ):
        make_plan(definition, tmp_path / "out", Resources("cpu"), None, 1)
    folds = make_plan(
        read_study("country", [*words, "folds=5"]),
        tmp_path,
        Resources("cpu"),
        None,
        1,
        images_per_second=1000,
    )
    assert folds.lines[0].seconds == pytest.approx(5 * plan.lines[0].seconds)
    second = read_study("country", [*words, 'tasks.country_shift.shifted=["no/aptos", "no/more/aptos"]'])
    several = make_plan(second, tmp_path, Resources("cpu"), None, 1, images_per_second=1000).lines
    alone = [one.seconds for one in several if (one.task, one.method) == ("country_shift-aptos", "map")]
    assert alone == [pytest.approx(predicted / 3000, rel=0.01)]  # predicted, not trained
    unknown = read_study("country", [*words, "tasks.country_shift.data=no/mine"])
    with pytest.raises(InputError, match="data set 'mine'"):
        make_plan(unknown, tmp_path / "out", Resources("cpu"), None, 1, images_per_second=1000)


SIZES = {"train": 1000, "validation": 100, "test": 200, "shifted_test": 50}


def test_a_run_costs_its_epochs_its_validation_and_its_predictions():
    words = ["method=dropout", "method.samples=4", "optimizer.epochs=10", "optimizer.validation_share=1"]
    run = load_run(None, words, data="d")
    cost = Cost(train=0.01, predict=0.002, start=3.0, disk=7)
    expected = 3 + 10 * (1000 * 0.01 + 100 * 0.002) + (100 + 200 + 50) * 0.002
    assert cost.seconds(run, SIZES) == pytest.approx(expected)
    assert cost.bytes(run, SIZES) == 7 + 350 * (8 * 4 + 24) + ALLOWANCE
    assert prediction_bytes(SIZES, 4) == 350 * (8 * 4 + 24)


def test_a_stated_speed_counts_a_gradient_as_three_passes():
    words = ["model.name=lenet", "method=ensemble", "method.member=dropout", "method.member.samples=6"]
    cost = stated_cost(load_run(None, words, data="d"), images_per_second=100)
    assert cost.train == pytest.approx(1 / 100)
    assert cost.predict == pytest.approx(6 / 300)
    assert cost.start == 0


def test_status_before_during_and_after(finished, tmp_path):
    root, definition, *_ = finished
    before = read_status(definition, tmp_path / "nothing")
    assert [(dict(line.trials), dict(line.runs)) for line in before.lines] == [({"left": 2}, {"left": 2})] * 2
    assert "no process is at work: 8 runs left" in "\n".join(console.status_lines(before))

    after = read_status(definition, root / "out")
    assert all(line.left == 0 and line.trials["done"] == 2 for line in after.lines)
    assert "finished" in "\n".join(console.status_lines(after))
    assert after.finished

    longer = read_status(study(root, root / "data", trials=4, seeds=3), root / "out")
    for line in longer.lines:
        assert line.trials == {"done": 2, "left": 2}
        assert line.seconds_left == pytest.approx(line.left * line.seconds)
