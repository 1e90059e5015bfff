"""The plan of a study: what it will compute, and its rough cost in hours and disk space."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from retinabench.data.datasets import synthetic
from retinabench.data.prepared import open_prepared, prepared
from retinabench.data.registry import TASKS
from retinabench.data.tasks import Task, expected_sizes
from retinabench.experiments.config import Run
from retinabench.experiments.execution import member_runs
from retinabench.experiments.run import PREDICTED
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.prediction_files import ensembles
from retinabench.experiments.study.study import StudyCell, cells, folder_of, is_drawn, most_runs, open_task, trials
from retinabench.methods.training.prediction import validation_plan
from retinabench.models.build import parameters_of, shapes
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

SPEED = {"cpu": 2e10, "cuda": 2e13}  # assumed floating-point operations per second of a core and of a GPU
SIZE = 512  # assumed side in pixels of images that are not prepared yet
ROW_BYTES = 24  # of a prediction file's image, beside its samples
ALLOWANCE = 50_000  # bytes of a run's small files


@dataclass(frozen=True)
class PlanLine:
    """A method on a task. trials, runs: of the search, and at most of the choices' other seeds; done: of both.

    seconds: of one run, and `bytes` of its folder. pooled: bytes of the ensembles' and labelled prediction files.
    """

    task: str
    method: str
    trials: int
    runs: int
    done: int
    seconds: float
    bytes: int
    pooled: int

    @property
    def left(self) -> int:
        """Runs to compute, at most."""
        return self.trials + self.runs - self.done


@dataclass(frozen=True)
class StudyPlan:
    """All lines. parallel: runs at once, None where the cluster decides; drawn_bytes: of images still to be drawn."""

    study: Study
    lines: list[PlanLine]
    device: str
    parallel: int | None
    drawn_bytes: int
    free_bytes: int

    @property
    def seconds(self) -> float:
        return sum(line.left * line.seconds for line in self.lines)

    @property
    def bytes(self) -> int:
        return self.drawn_bytes + sum(line.left * line.bytes + line.pooled for line in self.lines)


def make_plan(study: Study, out: Path, device: str, parallel: int | None) -> StudyPlan:
    """Count the runs of a study and estimate their cost on `cpu` or `cuda`; nothing is computed or written."""
    lines = [_line(study, cell, out, device) for cell in cells(study, out)]
    drawn = {task.draw for label, task in study.tasks.items() if task.draw and not is_drawn(study, label, out)}
    to_draw = sum(len(synthetic.records(None, one.images, one.seed)) * 3 * one.size**2 for one in drawn)
    existing = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.exists())
    return StudyPlan(study, lines, device, parallel, to_draw, shutil.disk_usage(existing).free)


def _line(study: Study, cell: StudyCell, out: Path, device: str) -> PlanLine:
    sizes, side, task = _images(study, cell.task, out)
    known = trials(study, cell)
    done = 0
    if task is not None and cell.runs.is_dir():
        done = sum((folder_of(run, cell, task) / "done").is_file() for run in known)
        names = {folder_of(run, cell, task).name for run in known}
        own = cell.runs.glob(f"{cell.base.method.name}-*/done")
        others = sum(file.parent.name not in names for file in own)
        done += min(others, most_runs(study)) if cell.beside is None else 0
    if cell.beside is not None:  # nothing is trained
        sizes = {**sizes, "train": 1}
    run, folds = cell.base, study.folds or 1
    predictions = prediction_bytes(sizes, run.method.samples)
    # Of posterior.pt; that of a variational method takes twice as many.
    posterior = 4 * parameters_of(_trained(run).model)
    pooled = len(ensembles(study)) * study.ensemble + len(study.run_seeds)
    return PlanLine(
        cell.task, cell.method, len(known), most_runs(study), done, folds * operations(run, sizes, side) / SPEED[device],
        folds * (posterior + predictions + ALLOWANCE), len(study.choices) * pooled * predictions,
    )  # fmt: skip


def _images(study: Study, label: str, out: Path) -> tuple[dict[str, int], int, Task | None]:
    """Return how many images every split of a task has or will have, their side, and the task where its data are there."""
    given = study.tasks[label]
    if given.draw is not None and not is_drawn(study, label, out):
        records = synthetic.records(None, given.draw.images, given.draw.seed)
        divided = TASKS[given.task or label].divide(records)
        return {name: len(rows) for name, rows in divided.items()}, given.draw.size, None
    if given.data is not None and not all(prepared(Path(one)) for one in (given.data, given.shifted) if one):
        data = Path(given.data)
        shifted = None if given.shifted is None else given.shifted_dataset or Path(given.shifted).name
        sizes = expected_sizes(given.task or label, given.dataset or data.name, shifted)
        return sizes, open_prepared(data).size if prepared(data) else SIZE, None
    task = open_task(study, label, out)
    return {name: len(rows) for name, rows in task.splits.items()}, task.data.size, task


def operations(run: Run, sizes: dict[str, int], side: int) -> float:
    """Return the floating-point operations of a run, in passes through the network.

    A gradient of one image counts three passes, a prediction one for each posterior sample. A method takes as many gradients
    per image as it says (`MethodConfig.gradients_per_example`); what its layers cost beside is not counted. Of a head that is
    trained alone the trunk is passed once per image, and the head is not counted.
    """
    run = _trained(run)
    network = shapes(run.model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():  # counted without computing it
        network.eval()(torch.empty(1, 3, side, side, device=next(network.parameters()).device))
    once = float(counter.get_total_flops())
    predicted = sum(sizes.get(split, 0) for split in PREDICTED)
    if run.model.trained == "head":
        return once * (sizes["train"] + predicted)
    validation = validation_plan(run, sizes["train"], sizes["validation"])
    gradients = run.method.gradients_per_example(run.optimizer) * sizes["train"]
    validated = run.optimizer.epochs * sizes["validation"] * validation.samples / validation.every
    return once * (3 * gradients + validated + predicted * run.method.samples)


def prediction_bytes(sizes: dict[str, int], samples: int) -> int:
    """Return the bytes of a predictions file: samples are stored as float64, which hardly compress."""
    return sum(sizes.get(split, 0) for split in PREDICTED) * (8 * samples + ROW_BYTES)


def _trained(run: Run) -> Run:
    """Return the run, or the first of those that it combines which is trained."""
    while members := member_runs(run):
        run = members[0]
    return run


# ------------------------------------------------------------------------------- what the terminal shows


def plan_table(plan: StudyPlan) -> Table:
    """Return the plan: a row per method and task, then the sum."""
    heads = ("trials", "other runs, at most", "done", "left", "each", "hours left", "disk left")
    rows = []
    for line in plan.lines:
        disk, hours = line.left * line.bytes + line.pooled, f"{line.left * line.seconds / 3600:.3g}"
        texts = (line.method, line.trials, line.runs, line.done, line.left, duration(line.seconds), hours, size(disk))
        rows.append(Row(line.task, [Cell(str(text)) for text in texts]))
    sums = [sum(getattr(line, name) for line in plan.lines) for name in ("trials", "runs", "done", "left")]
    total = ("", *sums, "", f"{plan.seconds / 3600:.3g}", size(plan.bytes))
    rows.append(Row("all", [Cell(str(text)) for text in total], rule=True))
    columns = [Column("method", text=True), *map(Column, heads)]
    return Table.of(f"{plan.study.title}: the plan", columns, rows, row_header="task")


def plan_lines(plan: StudyPlan) -> Iterator[str]:
    """Yield the total cost of the plan, and how it was estimated."""
    unit, what = ("CPU", "core") if plan.device == "cpu" else ("GPU", "GPU")
    at_once = "" if plan.parallel is None else f", with {plan.parallel} at once"
    ends = duration(plan.seconds / (plan.parallel or 1))
    yield (
        f"{sum(line.left for line in plan.lines)} runs, {plan.seconds / 3600:.3g} {unit}-hours{at_once}: about {ends}; "
        f"{size(plan.bytes)} of disk ({size(plan.free_bytes)} free)"
    )
    yield (
        f"A rough estimate: {SPEED[plan.device]:.0e} operations per second of a {what} are assumed, three passes for a "
        "gradient and one for a predicted sample. Reading, scoring and tables are not included, nor what layers that draw "
        "cost beside their passes. --status tells the time left from the runs that are done."
    )
    if plan.bytes > plan.free_bytes:
        yield "The free disk space is not sufficient."


def duration(seconds: float) -> str:
    """Write seconds as `45 s`, `12 min`, `3.5 h` or `4.2 days`."""
    for limit, divisor, unit in ((90, 1, "s"), (5400, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.{int(seconds < 10 * divisor)}f} {unit}"
    return f"{seconds / 86400:.1f} days"


def size(count: float) -> str:
    """Write bytes as `12 MB` or `3.4 GB`."""
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.3g} GB"
