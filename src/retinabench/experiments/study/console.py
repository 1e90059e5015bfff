"""What the terminal shows of a study: its plan, its status and its results."""

from __future__ import annotations

import time
from collections.abc import Iterator

from retinabench.experiments.study.plan import CostPlan
from retinabench.experiments.study.status import KINDS, Status
from retinabench.experiments.study.summary import RANKED, StudySummary, rank_cell, score_column, value_cell
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

GIGABYTE = 1e9
LEADS = (("in_domain", "auroc"), ("shifted", "auroc"), ("balanced", "referral_accuracy_area"))
_METHOD = Column("method", text=True)


def plan_table(plan: CostPlan) -> Table:
    """Return the plan: a row per method and task, then the sum."""
    heads = ("trials", "other runs, at most", "done", "left", "each", "hours left", "disk left")
    rows = []
    for line in plan.lines:
        counts = (line.trials, line.runs, line.done, line.left)
        disk = line.left * line.bytes + line.pooled
        cost = (duration(line.seconds), f"{line.left * line.seconds / 3600:.3g}", size(disk))
        rows.append(Row(line.task, [Cell(str(text)) for text in (line.method, *counts, *cost)]))
    sums = [sum(getattr(line, name) for line in plan.lines) for name in ("trials", "runs", "done", "left")]
    total = ("", *sums, "", f"{plan.seconds / 3600:.3g}", size(plan.bytes))
    rows.append(Row("all", [Cell(str(text)) for text in total], rule=True))
    title = f"{plan.study.title}: the plan"
    return Table.of(title, [_METHOD, *map(Column, heads)], rows, row_header="task")


def plan_lines(plan: CostPlan) -> Iterator[str]:
    """Yield the total cost of the plan, and how it was estimated."""
    unit = "CPU" if plan.device == "cpu" else "GPU"
    at_once = "" if plan.parallel is None else f", with {plan.parallel} at once"
    ends = duration(plan.seconds / (plan.parallel or 1))
    yield (
        f"{sum(line.left for line in plan.lines)} runs, {plan.seconds / 3600:.3g} {unit}-hours{at_once}: about {ends}; "
        f"{size(plan.bytes)} of disk ({size(plan.free_bytes)} free)"
    )
    if plan.images_per_second is not None:
        yield (
            f"Priced at {plan.images_per_second:g} training images of MAP per second and GPU, as stated: a gradient counts "
            "three passes, a posterior sample of a prediction one. What layers that draw cost beside their passes, reading, "
            "scoring and tables are not included; benchmarks/gpu_methods.py measures the first."
        )
    else:
        yield _probed(plan)
    if plan.bytes > plan.free_bytes:
        yield "The free disk space is not sufficient."


def _probed(plan: CostPlan) -> str:
    return (
        f"Estimated by a probe on {plan.device}: for every method two short trainings, of a few and of more batches, and a "
        "few predictions were timed; their difference gives the seconds per image, times images and epochs. Scoring, "
        "tables and drawing of images are not included. Two criteria that choose the same trial share its runs, which "
        "reduces the cost."
    )


def status_table(status: Status) -> Table:
    """Return how many runs are in each state, per method and task."""
    counts = [Column(f"{name}: {' / '.join(KINDS)}") for name in ("trials", "other runs")]
    rows = []
    for line in status.lines:
        left = line.seconds_left
        texts = (
            line.method,
            *(" / ".join(str(counted[kind]) for kind in KINDS) for counted in (line.trials, line.runs)),
            "" if line.seconds is None else duration(line.seconds),
            "unknown" if left is None else f"{left / 3600:.3g}",
        )
        rows.append(Row(line.task, [Cell(text) for text in texts]))
    columns = [_METHOD, *counts, Column("each"), Column("hours left")]
    return Table.of("Status", columns, rows, row_header="task")


def status_lines(status: Status) -> Iterator[str]:
    """Yield which runs failed, which process is at work, and what is left."""
    for line in status.lines:
        for run, found in line.failures:
            log = f" (log: {found.log})" if found.log else ""
            yield f"{line.task}, {run}: {found.state.replace('_', ' ')}: {found.message}{log}"
    left = sum(line.left for line in status.lines)
    if status.holder is not None:
        since = duration(time.time() - status.holder.since)
        ends = "" if status.seconds_left is None else f", about {duration(status.seconds_left)} left"
        yield f"at work for {since} (process {status.holder.process} on {status.holder.host}): {left} runs left{ends}"
    elif left:
        yield f"no process is at work: {left} runs left; the same command without --status continues"
    elif status.finished:
        yield "finished: see summary.md"
    else:
        yield "all runs are done; the same command without --status writes the summary"


def summary_tables(summary: StudySummary) -> Iterator[Table]:
    """Yield one table per task and criterion: the leading scores, and the rank by the score that orders it."""
    for found in summary.tables:
        keys = [key for key in LEADS if any(key in entry.scores for entry in found.entries)]
        lead = found.ordered_by or RANKED[0]
        columns = [*(score_column(key, with_set=True) for key in keys), Column("rank")]
        rows = [
            Row(one.entry.name, [*(value_cell(one, key) for key in keys), rank_cell(one, lead)])
            for one in found.entries
        ]
        yield Table.of(found.title, columns, rows, row_header="method")


def duration(seconds: float) -> str:
    """Write seconds as `45 s`, `12 min`, `3.5 h` or `4.2 days`."""
    for limit, divisor, unit in ((90, 1, "s"), (5400, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            value = seconds / divisor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds / 86400:.1f} days"


def size(count: float) -> str:
    """Write bytes as `12 MB` or `3.4 GB`."""
    return f"{count / 1e6:.0f} MB" if count < GIGABYTE else f"{count / GIGABYTE:.3g} GB"
