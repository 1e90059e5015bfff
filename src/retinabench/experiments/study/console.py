"""What the terminal shows of a study: its plan, where it stands, its results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from retinabench.experiments.study.cost_plan import Plan
from retinabench.experiments.study.status import KINDS, Status
from retinabench.experiments.study.summary import RANKED, criterion_title, rank_of, value_of
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS

GIGABYTE = 1e9
LEADS = (("in_domain", "auroc"), ("shifted", "auroc"), ("balanced", "referral_accuracy_area"))


def plan_table(plan: Plan) -> Table:
    """Return the plan: a row per method and task, then the sum."""
    table = Table(title=f"{plan.study.title}: the plan")
    for name in ("task", "method"):
        table.add_column(name)
    for name in ("trials", "other runs, at most", "done", "left", "each", "hours left", "disk left"):
        table.add_column(name, justify="right")
    for line in plan.lines:
        disk = line.left * line.bytes + line.pooled
        table.add_row(
            line.task,
            line.method,
            str(line.trials),
            str(line.runs),
            str(line.done),
            str(line.left),
            duration(line.seconds),
            f"{line.left * line.seconds / 3600:.3g}",
            size(disk),
        )
    trials, runs, done, left = (
        sum(getattr(line, name) for line in plan.lines) for name in ("trials", "runs", "done", "left")
    )
    table.add_section()
    hours = f"{plan.seconds / 3600:.3g}"
    table.add_row("all", "", str(trials), str(runs), str(done), str(left), "", hours, size(plan.bytes))
    return table


def plan_lines(plan: Plan) -> Iterator[str]:
    """Say what the plan comes to, and how it was found."""
    unit = "GPU" if plan.device.startswith("cuda") else "CPU"
    at_once = "" if plan.parallel is None else f", with {plan.parallel} at once"
    ends = duration(plan.seconds / (plan.parallel or 1))
    yield (
        f"{sum(line.left for line in plan.lines)} runs, {plan.seconds / 3600:.3g} {unit}-hours{at_once}: about {ends}; "
        f"{size(plan.bytes)} of disk ({size(plan.free_bytes)} free)"
    )
    yield (
        f"From a probe on {plan.device}: of every method two short trainings, of a few and of more batches, and a few "
        "predictions were timed; their difference gives the seconds per image, times images and epochs. Scores, tables "
        "and the drawing of pictures come on top. Two criteria that choose the same trial share its runs: then it is less."
    )
    if plan.bytes > plan.free_bytes:
        yield "The disk is too small for it."


def status_table(status: Status) -> Table:
    """Return how many runs stand where, per method and task."""
    table = Table()
    for name in ("task", "method"):
        table.add_column(name)
    for name in ("trials", "other runs"):
        table.add_column(f"{name}: {' / '.join(KINDS)}", justify="right")
    for name in ("each", "hours left"):
        table.add_column(name, justify="right")
    for line in status.lines:
        left = line.seconds_left
        table.add_row(
            line.task,
            line.method,
            " / ".join(str(line.trials[kind]) for kind in KINDS),
            " / ".join(str(line.runs[kind]) for kind in KINDS),
            "" if line.seconds is None else duration(line.seconds),
            "unknown" if left is None else f"{left / 3600:.3g}",
        )
    return table


def status_lines(status: Status) -> Iterator[str]:
    """Say who is at work, what is left, and what failed."""
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


def summary_tables(content: dict[str, Any]) -> Iterator[Table]:
    """Yield one table per task and criterion: the leading scores, and the rank by the one that orders it."""
    for found in content["tables"]:
        table = Table(title=f"{found['task']}, {criterion_title(found['criterion'])}")
        table.add_column("method")
        keys = [key for key in LEADS if any(key[1] in e["scores"].get(key[0], {}) for e in found["entries"])]
        for name, kind in keys:
            table.add_column(f"{SCORES[kind].label}: {SET_LABELS[name].lower()}", justify="right")
        lead = found["ordered_by"] or RANKED[0]
        table.add_column("rank", justify="right")
        for entry in found["entries"]:
            values = [value_of(entry, key) for key in keys]
            table.add_row(entry["name"], *values, rank_of(entry, (lead[0], lead[1])))
        yield table


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
