from pathlib import Path

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.many import Result
from retinabench.experiments.study import plan as module
from retinabench.experiments.study.definition import read_study, study_presets
from retinabench.experiments.study.plan import PlanLine, StudyPlan, duration, make_plan, operations, plan_lines, size
from retinabench.experiments.study.status import MethodStatus, Status, read_status, status_lines, status_table
from retinabench.experiments.study.study import cells, trials
from support.studies import MINIMAL, study, written

SIZES = {"train": 1000, "validation": 100, "test": 200, "shifted_test": 50}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.25, "3.2 s"), (89, "89 s"), (90, "1.5 min"), (5400, "1.5 h"), (172800, "2.0 days"), (172799, "48 h")],
)
def test_times_are_written_in_the_unit_that_suits(seconds, text):
    assert duration(seconds) == text


def test_sizes():
    assert (size(12.4e6), size(999.6e6), size(3.4e9)) == ("12 MB", "1000 MB", "3.4 GB")


def cells_of(table):
    return [[row.label, *(str(cell.content) for cell in row.cells)] for block in table.blocks for row in block.rows]


def test_a_plan_is_summed_over_what_is_left(tmp_path):
    first = PlanLine("country_shift", "map", 4, 2, 1, 3600.0, 10**6, 10**6)
    lines = [first, PlanLine("country_shift", "dropout", 0, 3, 0, 60.0, 10**6, 0)]
    plan = StudyPlan(study(tmp_path, Path("d")), lines, "cpu", 2, 0, 10)
    rows = cells_of(module.plan_table(plan))
    assert rows[0] == ["country_shift", "map", "4", "2", "1", "5", "60 min", "5", "6 MB"]
    assert rows[-1][:6] == ["all", "", "4", "5", "1", "8"]
    text = list(plan_lines(plan))
    assert text[0].startswith("8 runs, 5.05 CPU-hours, with 2 at once: about 2.5 h;")
    assert text[-1] == "The free disk space is not sufficient."


def test_a_plan_names_all_runs_and_writes_nothing(tmp_path):
    tasks = {"country_shift": {"draw": {"images": 64, "size": 16}}}
    plan = make_plan(study(tmp_path, Path("unused"), tasks=tasks), tmp_path / "out", "cpu", 2)
    assert not (tmp_path / "out").exists()
    assert [(line.trials, line.runs, line.done, line.left) for line in plan.lines] == [(2, 2, 0, 4)] * 2
    assert plan.drawn_bytes == 128 * 3 * 16**2
    assert plan.bytes > plan.drawn_bytes


def test_a_plan_counts_what_is_done(finished):
    root, definition, engine, _ = finished
    plan = make_plan(definition, root / "out", "cpu", None)
    assert sum(line.done for line in plan.lines) == len(engine.computed)
    # Bytes are foretold within a fifth.
    for line in plan.lines:
        runs = root / "out" / line.task / line.method / "runs"
        sizes = [sum(f.stat().st_size for f in folder.iterdir()) for folder in runs.glob("*-seed-*")]
        assert line.bytes - 50_000 == pytest.approx(np.mean(sizes), rel=0.2)


def test_a_run_costs_its_passes_by_hand():
    """A gradient counts three passes, a prediction one per sample; the passes of LeNet are those of MAP."""
    words = ["model.name=lenet", "optimizer.epochs=10", "optimizer.validation_share=1"]
    once = operations(load_run(None, [*words, "method=map"], data="d"), {"train": 0, "validation": 0, "test": 1}, 32)
    assert once > 0
    found = operations(load_run(None, [*words, "method=dropout", "method.samples=4"], data="d"), SIZES, 32)
    assert found == pytest.approx(once * (10 * 3 * 1000 + 10 * 4 * 100 + 4 * 350))
    assert module.prediction_bytes(SIZES, 4) == 350 * (8 * 4 + 24)


def test_a_plan_needs_no_data_of_known_data_sets(tmp_path):
    """35,126 training images, 10,906 that validate with one sample, 42,670 + 2,929 tested, also with shift."""
    words = ["trials=0", "tasks.country_shift.data=no/eyepacs", "tasks.country_shift.shifted=no/aptos"]
    plan = make_plan(read_study("country", words), tmp_path / "out", "cuda", None)
    seconds = {line.method: line.seconds for line in plan.lines}
    passes, predicted = 90 * (3 * 35_126 + 10_906), 10_906 + 733 + 42_670 + 2_929
    assert seconds["dropout"] / seconds["map"] == pytest.approx((passes + 5 * predicted) / (passes + predicted))
    assert seconds["fsvi"] == seconds["dropout"]  # its five draws of a step are of the last layer
    assert plan.lines[0].bytes > 4 * 23_000_000  # a ResNet-50
    assert "GPU-hours" in next(plan_lines(plan))
    studies = [read_study(written(tmp_path, MINIMAL), [*words, *more]) for more in ([], ["folds=5"])]
    whole, folds = (make_plan(one, tmp_path, "cuda", None) for one in studies)
    assert folds.lines[0].seconds == pytest.approx(5 * whole.lines[0].seconds)
    unknown = read_study("country", [*words, "tasks.country_shift.data=no/mine"])
    with pytest.raises(InputError, match="data set 'mine'"):
        make_plan(unknown, tmp_path / "out", "cuda", None)


def test_status_before_and_after(finished, tmp_path):
    root, definition, *_ = finished
    before = read_status(definition, tmp_path / "nothing")
    assert [(dict(line.trials), dict(line.runs)) for line in before.lines] == [({"left": 2}, {"left": 2})] * 2
    assert "no process is at work: 8 runs left" in "\n".join(status_lines(before))

    after = read_status(definition, root / "out")
    assert all(line.left == 0 and line.trials["done"] == 2 for line in after.lines)
    assert "finished" in "\n".join(status_lines(after))
    assert after.finished

    longer = read_status(study(root, root / "data", trials=4, seeds=3), root / "out")
    for line in longer.lines:
        assert line.trials == {"done": 2, "left": 2}
        assert line.seconds_left == pytest.approx(line.left * line.seconds)


def test_a_status_counts_and_names_what_failed():
    row = Result("a" * 12, "out_of_memory", "", 3.0, 2, 0.0, "it broke", "logs/1.txt")
    line = MethodStatus("country_shift", "map", seconds=120.0, failures=[("map seed 1", row)])
    line.trials.update(done=3, left=1)
    line.runs.update(failed=1, left=2)
    status = Status([line], None, None, finished=False)
    (row,) = cells_of(status_table(status))
    assert row == ["country_shift", "map", "3 / 0 / 0 / 1", "0 / 0 / 1 / 2", "2.0 min", "0.1"]
    assert list(status_lines(status)) == [
        "country_shift, map seed 1: out of memory: it broke (log: logs/1.txt)",
        "no process is at work: 3 runs left; the same command without --status continues",
    ]


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        (MINIMAL.replace("seeds", "sedes"), "unknown key 'sedes'", "Did you mean 'seeds'?"),
        (MINIMAL.replace('data = "data"', 'dta = "data"'), "unknown key 'tasks.country_shift.dta'", "'data'"),
        (MINIMAL.replace("config", "confg"), "unknown key 'methods.map.confg'", "'config'"),
        (MINIMAL.replace('data = "data"', "draw = { image = 64 }"), "draw.image'", "'images'"),
        (MINIMAL.replace("country_shift", "contry_shift"), "unknown task 'contry_shift'", "'country_shift'"),
        (MINIMAL + "[base.optimizer]\nepoch = 3\n", "unknown key 'optimizer.epoch'", "'epochs'"),
        (MINIMAL.replace("demo/map", "demo/mpa"), "unknown preset 'demo/mpa'", "'demo/map'"),
        (MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroc"]'), "methods.map", "'space'"),
        (MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroch"]'), "in_domain_auroch", "mean"),
        (MINIMAL.replace("trials = 0", "trials = 4"), "trials need 'criteria'", "trials = 0"),
        (MINIMAL.replace("trials = 0", 'trials = 0\ncriteria = ["in_domain_auroc"]'), "methods.map", "tuned"),
        (MINIMAL.replace("ensemble = 0", "ensemble = 3"), "an ensemble of 3 of 2 seeds", "2 … seeds"),
        (MINIMAL.replace("ensemble = 0", "ensemble = 1"), "an ensemble of 1", "or 0"),
        (MINIMAL.replace("seeds = 2", "seeds = 0"), "seeds", "greater than or equal to 1"),
        (MINIMAL.replace('data = "data"', ""), "needs one of 'data'", "'draw'"),
        (MINIMAL.replace("methods.map", 'methods."a/b"'), "'a/b' cannot name a folder", "letters"),
        (MINIMAL + 'run = { method = { name = "ensemble" } }', "methods.map: is an ensemble", "members"),
        (
            MINIMAL.replace("methods.map", "methods.mine").replace('config = "demo/map"', ""),
            "methods.mine: no method is named", "Set methods.mine.run.method.name",
        ),
        ("trials = ", "is not TOML", "study.toml"),
        (MINIMAL.replace("seeds = 2", "seeds = 100").replace("ensemble = 0", "ensemble = 50"), "ensembles of 50", ""),
        (MINIMAL.replace("seeds = 2", "seeds = 1_000_000_000"), "seeds", ""),
        (MINIMAL.replace("[methods.map]", '[methods."map\\n"]'), "cannot name a folder", ""),
        ("folds = 1" + MINIMAL, "folds = 2 or more", ""),
        ("repeats = 2" + MINIMAL, "needs folds", ""),
        (
            "folds = 3" + MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroc"]'),
            "would test on", "",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_cure(tmp_path, text, key, hint):
    file = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        cells(read_study(file), tmp_path)
    assert key in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize("name", sorted(study_presets()))
def test_every_preset_fits_its_methods_and_spaces(name, tmp_path):
    study = read_study(name)
    for cell in cells(study, tmp_path):
        runs = trials(study, cell)
        assert len(runs) == study.trials
        assert len({run.hash("f") for run in runs}) == study.trials
        assert all(run.method.name == cell.base.method.name for run in runs)


def test_the_label_names_the_method_where_nothing_else_does(tmp_path):
    text = MINIMAL.replace("methods.map", "methods.dropout")
    by_label = written(tmp_path, text.replace('config = "demo/map"', "run = { method = { rate = 0.3 } }"))
    (cell,) = cells(read_study(by_label), tmp_path)
    assert (cell.base.method.name, cell.base.method.rate) == ("dropout", 0.3)
    (cell,) = cells(read_study(written(tmp_path, text)), tmp_path)
    assert cell.base.method.name == "map"  # as its configuration says
    other = written(tmp_path, text.replace("demo/map", "real/frozen").replace("dropout", "mine"))
    (cell,) = cells(read_study(other), tmp_path)
    assert cell.base.method.name == "map"  # the method of a configuration that names none
