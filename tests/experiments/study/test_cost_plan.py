"""The plan of a study: its runs, their time and their disk space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.resources import Resources
from retinabench.experiments.study import console
from retinabench.experiments.study.cost_plan import make_plan
from retinabench.experiments.study.definition import read_study
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
