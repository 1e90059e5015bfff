"""The page, tables and figures of `monitor`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from retinabench.core.files import write_bytes
from retinabench.metrics.guarantees.goals import PER, TARGETS, Goal
from retinabench.metrics.intervals import Interval
from retinabench.metrics.monitoring import Evidence, Monitoring
from retinabench.reports.toolkit import figures as style
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit import tables as toolkit
from retinabench.reports.toolkit.figures import LegendEntry, Mark, Panel
from retinabench.reports.toolkit.pages import Fact, Finding
from retinabench.reports.toolkit.tables import COUNT, UNDEFINED, Cell, Column, NumberFormat, Row, Table, macros, percent

HEIGHT = 260
LEAST, MOST = 1e-3, 1e9  # Range of the evidence that is drawn.
LARGE = 1e4  # Evidence above this is not written as a number.
LATEST = 6  # Windows of time on the terminal.
EVIDENCE, SIGNED = NumberFormat(2), NumberFormat(3, signed=True)
PACKAGE = "retinabench.reports"
CONTENTS = [("verdict", "Verdict"), ("evidence", "Evidence"), ("time", "Over time"), ("settings", "Settings")]


def evidence_panel(paths: Sequence[tuple[Mark, Evidence]], needed: float) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
    least, largest = 1.0, needed
    for one, path in paths:
        wealth = np.exp(np.clip(path.log_wealth, np.log(LEAST), np.log(MOST)))
        least, largest = min(least, float(wealth.min())), max(largest, float(wealth.max()))
        places = style.thin(np.arange(len(wealth), dtype=np.float64)).astype(int)
        axes.plot(path.day[places], wealth[places], color=one.color, linestyle=one.linestyle, drawstyle="steps-post")
        if path.alarm is not None:
            days = date2num(path.alarm)  # type: ignore[no-untyped-call]
            axes.axvline(float(days), color=one.color, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.axhline(needed, color=style.BAD, linewidth=1)
    axes.annotate(
        f"alarm at {needed:g}", (0, needed), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points",
        color=style.BAD, fontsize=style.TEXT,
    )  # fmt: skip
    axes.set(yscale="log", ylim=(least / 3, 5 * largest), ylabel="evidence")
    # Raised exponents would be too small to read.
    axes.yaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}")
    _dated(axes)
    return figure


def window_panel(result: Monitoring, values: Sequence[Interval], label: str, goal: float | None = None) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
    start = np.array([one.start for one in result.windows], "datetime64[D]")
    numbers = np.array([[one.value, one.low, one.high] for one in values], np.float64)
    known = np.isfinite(numbers[:, 0])
    color = style.mark(0).color
    axes.plot(start[known], numbers[known, 0], marker="o", markersize=4, linewidth=1, color=color)
    bounded = np.isfinite(numbers).all(axis=1)
    axes.vlines(start[bounded], numbers[bounded, 1], numbers[bounded, 2], color=color, linewidth=1.2, alpha=0.55)
    if goal is not None:
        axes.axhline(goal, color=style.BAD if goal else style.MUTED, linewidth=1)
    margin = max((start[-1] - start[0]) / 25, np.timedelta64(1, "D"))
    axes.set_xlim(start[0] - margin, start[-1] + margin)  # the same range where labels are missing at the end
    axes.set(ylabel=label)
    _dated(axes)
    return figure


def _dated(axes: Axes) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    style.light_grid(axes, "y")


def monitor_tables(result: Monitoring) -> Group:
    lines = "\n".join(f"{one.lead} {one.text}" for one in findings(result))
    head, evidence = Text(headline(result), style="bold"), evidence_table(result)
    return Group(head, evidence, windows_table(result, LATEST), Text(lines))


def evidence_table(result: Monitoring) -> Table:
    watched = [(one.name, one) for one in result.risks]
    watched += [("all goals together", result.combined)] if len(watched) > 1 else []
    watched += [(_group_text(one.name), one) for one in result.groups]
    rows = []
    for name, one in [*watched, ("drift", result.drift)]:
        value = Cell.of(result.latest[name][1]) if name in result.latest else UNDEFINED
        if one.wealth > LARGE:
            evidence = Cell(f"> {LARGE:,.0f}")
        else:
            evidence = Cell("< 0.01") if one.wealth < 0.01 else Cell.number(one.wealth, form=EVIDENCE)
        alarm = UNDEFINED if one.alarm is None else Cell(str(one.alarm), emphasis="bad")
        cells = [Cell.count(one.visits), value, evidence, Cell.number(one.needed, form=COUNT), alarm]
        rows.append(Row(goal_text(name), cells))
    columns = [Column(head) for head in ("visits", "now", "evidence", "alarm at", "alarm since")]
    note = (
        f"now: the value in the latest {result.unit} with labels, {PER[result.certified.per]}, with its 95 % interval."
    )
    return Table.of("Evidence so far", columns, rows, row_header="Watched", note=note)


def windows_table(result: Monitoring, most: int | None = None) -> Table:
    names = [str(goal) for goal in result.certified.goals]
    always = not any(goal.target == "sensitivity" for goal in result.certified.goals)
    heads = ["images", "labelled", "read by\nexpert", *(goal_text(name).replace(" ", "\n", 1) for name in names)]
    heads += [TARGETS["sensitivity"].heading] if always else []
    heads += ["observed − predicted"] if most is None else []
    rows = []
    for one in result.windows[-most if most else 0 :]:
        cells = [Cell.count(one.images), Cell.count(one.labelled), Cell.of(one.referred)]
        cells += [Cell.of(one.risks[name]) for name in names] + ([Cell.of(one.sensitivity)] if always else [])
        cells += [Cell.of(one.calibration, SIGNED)] if most is None else []
        rows.append(Row(one.start, cells))
    title = f"By {result.unit}"
    if most and len(result.windows) > most:
        title += f", the latest {most} of {len(result.windows)}"
    return Table.of(title, [Column(head) for head in heads], rows, row_header="From")


def goal_text(goal: object) -> str:
    target, *bound = str(goal).split()
    heading = TARGETS[target].heading if target in TARGETS else target
    return " ".join([heading, *bound]).replace("<=", "≤").replace(">=", "≥")


def headline(result: Monitoring) -> str:
    return _say("headline", result)


def findings(result: Monitoring) -> list[Finding]:
    labels, drift = ("bad" if one.alarm is not None else "" for one in (result.combined, result.drift))
    groups = [Finding("Groups.", _say("groups", result), "bad" if result.failing else "")] if result.groups else []
    return [
        Finding("Certified risks.", _say("risk", result), labels),
        *groups,
        Finding("Drift.", _say("drift", result), drift),
        Finding("What no alarm can see.", _say("blind", result)),
    ]


def _say(name: str, result: Monitoring) -> str:
    macro = getattr(macros("sentences.j2", package=PACKAGE), name)
    goals = result.broken or result.certified.goals
    missed = [_missed(result, name) for name in result.missed]
    group = _group_text(result.failing[0].name) if result.failing else ""
    said = macro(result, percent(result.level), " and ".join(map(goal_text, goals)), "; ".join(missed), group)
    return " ".join(str(said).split())


def _group_text(name: str) -> str:
    group, _, goal = name.rpartition(": ")
    return f"“{group}” ({goal_text(goal)})"


def _missed(result: Monitoring, name: str) -> str:
    window, one = result.latest[name]
    value, low, high = map(toolkit.THREE_DIGITS, (one.value, one.low, one.high))
    return f"{goal_text(name)}: {value} [{low}, {high}] {'on' if result.unit == 'day' else f'in the {result.unit} from'} {window.start}"


def write_page(result: Monitoring, out: Path) -> Path:
    write_bytes(out / "index.html", page(result).encode())
    return out / "index.html"


@style.drawing()
def page(result: Monitoring) -> str:
    goals = [LegendEntry(goal_text(one.name), style.mark(k + 1)) for k, one in enumerate(result.risks)]
    paths = [(style.mark(k + 1), one) for k, one in enumerate(result.risks)]
    paths = [(style.mark(0), result.combined), *paths] if len(paths) > 1 else paths
    text = "Evidence after each day, on a logarithmic axis"
    risks = evidence_panel(paths, result.combined.needed)
    drift = evidence_panel([(style.mark(0), result.drift)], result.drift.needed)
    context = {
        "title": _say("short", result),
        "m": result,
        "days": f"{min(result.drift.day)} to {max(result.drift.day)}",
        "contents": CONTENTS,
        "findings": findings(result),
        "evidence": evidence_table(result),
        "windows": windows_table(result),
        "windows_note": _say("windows", result),
        "legend": [LegendEntry("all goals together", style.mark(0)), *goals] if len(goals) > 1 else goals,
        "evidence_panels": [
            Panel.of(risks, "evidence-risks", "Against the certified goals", text),
            Panel.of(drift, "evidence-drift", "Of drift, without labels", text),
        ],
        "lead": _goal_panel(result, _worst_goal(result), "lead"),
        "window_panels": _window_panels(result),
        "settings": _settings(result),
    }
    return pages.render("monitoring.html.j2", context, package=PACKAGE)


def _window_panels(result: Monitoring) -> list[Panel]:
    text = f"A value with its 95 % interval per {result.unit}"
    read = window_panel(result, [one.referred for one in result.windows], "share of images")
    gap = window_panel(result, [one.calibration for one in result.windows], "observed − predicted", 0.0)
    panels = [
        Panel.of(read, "window-0", "Read by the expert", text),
        Panel.of(gap, "window-1", "Calibration in the large", text),
    ]
    others = [goal for goal in result.certified.goals if goal != _worst_goal(result)]  # that one leads the page
    return panels + [_goal_panel(result, goal, f"goal-{k}") for k, goal in enumerate(others)]


def _worst_goal(result: Monitoring) -> Goal:
    """The goal that an alarm, or the latest labels, speak against; else the first one."""
    names = [*result.broken, *(one.name.rpartition(": ")[2] for one in result.failing), *result.missed]
    return next(
        (goal for name in names for goal in result.certified.goals if str(goal) == name), result.certified.goals[0]
    )


def _goal_panel(result: Monitoring, goal: Goal, name: str) -> Panel:
    values = [one.risks[str(goal)] for one in result.windows]
    figure = window_panel(result, values, goal.spec.heading, goal.value)
    return Panel.of(figure, name, goal_text(goal), f"A value with its 95 % interval per {result.unit}, and the goal")


def _settings(result: Monitoring) -> list[Fact]:
    one = result.certified
    if one.threshold is None:
        ends = (("above", one.negative), ("below", one.positive))
        referred = " and ".join(f"P(referable) {word} {end:.4g}" for word, end in ends if end is not None)
    elif math.isinf(one.threshold):
        referred = "no image" if one.threshold > 0 else "every image"
    else:
        referred = f"uncertainty ({one.uncertainty}) above {one.threshold:.6g}"
    rule = "above 0.5" if one.decision.is_default else f"of {one.decision.value:.4g} and more"
    return [
        Fact("Certified goals", ", ".join(map(goal_text, one.goals))),
        Fact("Estimand", PER[one.per]),
        Fact("Read by the expert", referred),
        Fact("Called referable", f"probability {rule}"),
        Fact("Rate of false alarms", f"at most {percent(result.level)} over all time, for each of the two alarms"),
        *(Fact("Note", note) for note in result.notes),
    ]
