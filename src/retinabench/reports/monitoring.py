"""The page, tables and figures of `monitor`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text

from retinabench.core.files import write_bytes
from retinabench.metrics.guarantees.goals import PER, TARGETS
from retinabench.metrics.monitoring import Evidence, Monitoring
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import (
    BAD,
    MUTED,
    TEXT,
    WIDTH,
    LegendEntry,
    Mark,
    Panel,
    canvas,
    light_grid,
    mark,
    thin,
    to_svg,
)
from retinabench.reports.toolkit.number_format import COUNT, NumberFormat, percent
from retinabench.reports.toolkit.pages import Fact, Finding
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table, to_terminal

HEIGHT = 260

LEAST, MOST = 1e-3, 1e9

"""Range of the evidence that is drawn."""


def evidence_panel(paths: Sequence[tuple[Mark, Evidence]], needed: float) -> Figure:
    """Draw evidence against a hypothesis day by day, on a logarithmic axis, with the line at which the alarm rings."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    least, largest = 1.0, needed
    for one, path in paths:
        wealth = np.exp(np.clip(path.log_wealth, np.log(LEAST), np.log(MOST)))
        least, largest = min(least, float(wealth.min())), max(largest, float(wealth.max()))
        places = thin(np.arange(len(wealth), dtype=np.float64)).astype(int)
        axes.plot(
            path.day[places], wealth[places], color=one.color, linestyle=one.linestyle, drawstyle="steps-post"
        )
        if path.alarm is not None:
            days = date2num(path.alarm)  # type: ignore[no-untyped-call]
            axes.axvline(float(days), color=one.color, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.axhline(needed, color=BAD, linewidth=1)
    axes.annotate(
        f"alarm at {needed:g}", (0, needed), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points",
        color=BAD, fontsize=TEXT,
    )  # fmt: skip
    axes.set(yscale="log", ylim=(least / 3, 5 * largest), ylabel="evidence (1: none)")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # raised exponents would be too small to read
    _dated(axes)
    return figure


def window_panel(
    start: NDArray[np.datetime64], values: Sequence[Interval], label: str, goal: float | None = None
) -> Figure:
    """Draw a value per window of time with its interval.

    Shapes: `start` (W,).
    """
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    numbers = np.array([[one.value, one.low, one.high] for one in values], np.float64)
    known = np.isfinite(numbers[:, 0])
    color = mark(0).color
    axes.plot(start[known], numbers[known, 0], marker="o", markersize=4, linewidth=1, color=color)
    bounded = np.isfinite(numbers).all(axis=1)
    axes.vlines(
        start[bounded], numbers[bounded, 1], numbers[bounded, 2], color=color, linewidth=1.2, alpha=0.55
    )
    if goal is not None:
        axes.axhline(goal, color=BAD if goal else MUTED, linewidth=1)
    margin = max((start[-1] - start[0]) / 25, np.timedelta64(1, "D"))
    axes.set_xlim(start[0] - margin, start[-1] + margin)  # the same range where labels are missing at the end
    axes.set(ylabel=label)
    _dated(axes)
    return figure


def _dated(axes: Axes) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    light_grid(axes, "y")


EVIDENCE = NumberFormat(2)

SIGNED = NumberFormat(3, signed=True)

LARGE = 1e4

LATEST = 6  # windows on the terminal

PACKAGE = "retinabench.reports"


def monitor_tables(found: Monitoring) -> Group:
    """Return the headline, the tables and what they mean, for the terminal."""
    tables = [evidence_table(found), windows_table(found, LATEST)]
    said = [f"{one.lead} {one.text}" for one in findings(found)]
    shown = Group(*map(to_terminal, tables))
    return Group(Text(headline(found), style="bold"), shown, Text("\n".join(said)))


def evidence_table(found: Monitoring) -> Table:
    """Return one row per certified target, for all of them together, and for drift."""
    heads = ("patients", "now", "evidence", "alarm at", "alarm since")
    several = len(found.risks) > 1
    rows = [_evidence_row(one.name, one, found.overall[one.name]) for one in found.risks]
    if several:
        rows.append(_evidence_row("all goals together", found.combined, None))
    rows.append(_evidence_row("drift", found.drift, None))
    return Table.of(
        "Evidence so far", [Column(head) for head in heads], rows, row_header="Watched",
        note=f"now: the value over all labelled images, {PER[found.certified.per]}, with its 95 % interval.",
    )  # fmt: skip


def _evidence_row(name: str, one: Evidence, value: Interval | None) -> Row:
    if len(one.log_wealth) and one.wealth > LARGE:
        evidence = Cell(f"> {LARGE:,.0f}")
    else:
        evidence = Cell("< 0.01") if one.wealth < 0.01 else Cell.number(one.wealth, form=EVIDENCE)
    alarm = Cell("–") if one.alarm is None else Cell(str(one.alarm), emphasis="bad")
    return Row(
        goal_text(name),
        [
            Cell.number(one.patients, form=COUNT), UNDEFINED if value is None else _cell(value), evidence,
            Cell.number(one.needed, form=COUNT), alarm,
        ],
    )  # fmt: skip


def windows_table(found: Monitoring, most: int | None = None) -> Table:
    """Return one row per window of time."""
    names = list(found.overall)
    heads = [
        "images",
        "labelled",
        "referred",
        *(goal_text(name).replace(" ", "\n", 1) for name in names),
    ]
    if most is None:
        heads.append("observed − predicted")
    rows = []
    for one in found.windows[-most if most else 0 :]:
        cells = [
            Cell.number(one.images, form=COUNT),
            Cell.number(one.labelled, form=COUNT),
            _cell(one.referred),
        ]
        cells += [_cell(one.risks[name]) for name in names]
        rows.append(Row(one.start, [*cells, *([_cell(one.calibration, SIGNED)] if most is None else [])]))
    title = f"By {found.unit}"
    if most and len(found.windows) > most:
        title += f", the latest {most} of {len(found.windows)}"
    return Table.of(title, [Column(head) for head in heads], rows, row_header="From")


def _cell(value: Interval, form: NumberFormat | None = None) -> Cell:
    return (
        Cell.number(value.value, value.low, value.high, form=form)
        if math.isfinite(value.value)
        else UNDEFINED
    )


def goal_text(goal: object) -> str:
    """Return a goal as a reader sees it: `error of the retained ≤ 0.05`."""
    target, *bound = str(goal).split()
    heading = TARGETS[target].heading if target in TARGETS else target
    return " ".join([heading, *bound]).replace("<=", "≤").replace(">=", "≥")


def headline(found: Monitoring) -> str:
    """Return the one sentence that matters most."""
    return _say("headline", found)


def findings(found: Monitoring) -> list[Finding]:
    """Return what labels and drift show."""
    labels = "bad" if found.combined.alarm is not None else ""
    drift = "bad" if found.drift.alarm is not None else ""
    return [
        Finding("Certified risks.", _say("risk", found), labels),
        Finding("Drift.", _say("drift", found), drift),
        Finding("What no alarm can see.", _say("blind", found)),
    ]


def windows_note(found: Monitoring) -> str:
    """Return how the windows of time are to be read."""
    return _say("windows", found)


def _say(name: str, found: Monitoring) -> str:
    macro = getattr(pages.macros("sentences.j2", package=PACKAGE), name)
    goals = found.broken or found.certified.goals
    return " ".join(str(macro(found, percent(found.level), " and ".join(map(goal_text, goals)))).split())


CONTENTS = [("verdict", "Verdict"), ("evidence", "Evidence"), ("time", "Over time"), ("settings", "Settings")]


def write_page(found: Monitoring, out: Path) -> Path:
    """Write `index.html` into a folder and return its path."""
    path = out / "index.html"
    write_bytes(path, page(found).encode())
    return path


def page(found: Monitoring) -> str:
    """Return the page as HTML: no script, nothing from the network, every text escaped."""
    days = [one.start for one in found.windows]
    context = {
        "title": headline(found),
        "m": found,
        "days": f"{min(found.drift.day)} to {max(found.drift.day)}",
        "contents": CONTENTS,
        "findings": findings(found),
        "evidence": evidence_table(found),
        "windows": windows_table(found),
        "windows_note": windows_note(found),
        "legend": _legend(found),
        "evidence_panels": _evidence_panels(found),
        "window_panels": _window_panels(found, np.array(days, "datetime64[D]")),
        "settings": _settings(found),
    }
    return pages.render("monitoring.html.j2", context, package=PACKAGE)


def _legend(found: Monitoring) -> list[LegendEntry]:
    entries = [LegendEntry(goal_text(one.name), mark(k + 1)) for k, one in enumerate(found.risks)]
    return [LegendEntry("all goals together", mark(0)), *entries] if len(entries) > 1 else entries


def _evidence_panels(found: Monitoring) -> list[Panel]:
    paths = [(mark(k + 1), one) for k, one in enumerate(found.risks)]
    if len(paths) > 1:
        paths.insert(0, (mark(0), found.combined))
    charts = [
        ("Against the certified goals", evidence_panel(paths, found.combined.needed), "risks"),
        ("Of drift, without labels", evidence_panel([(mark(0), found.drift)], found.drift.needed), "drift"),
    ]
    text = "Evidence after each day, on a logarithmic axis"
    return [
        Panel(name, to_svg(figure, f"evidence-{key}", title=name, description=text))
        for name, figure, key in charts
    ]


def _window_panels(found: Monitoring, start: np.ndarray) -> list[Panel]:
    charts = [
        ("Referred", window_panel(start, [one.referred for one in found.windows], "share of images")),
        (
            "Calibration in the large",
            window_panel(start, [one.calibration for one in found.windows], "observed − predicted", 0.0),
        ),
    ]
    for goal in found.certified.goals:
        values = [one.risks[str(goal)] for one in found.windows]
        charts.append((goal_text(goal), window_panel(start, values, goal.spec.heading, goal.value)))
    text = f"A value with its 95 % interval per {found.unit}"
    return [
        Panel(name, to_svg(figure, f"window-{k}", title=name, description=text))
        for k, (name, figure) in enumerate(charts)
    ]


def _settings(found: Monitoring) -> list[Fact]:
    one = found.certified
    referred = f"uncertainty ({one.uncertainty}) above {one.threshold:.6g}"
    if math.isinf(one.threshold):
        referred = "no image" if one.threshold > 0 else "every image"
    rule = "above 0.5" if one.decision == 0.5 else f"of {one.decision:.4g} and more"
    facts = [
        Fact("Certified goals", ", ".join(map(goal_text, one.goals))),
        Fact("Estimand", PER[one.per]),
        Fact("Referred", referred),
        Fact("Called referable", f"probability {rule}"),
        Fact(
            "Rate of false alarms",
            f"at most {percent(found.level)} over all time, for each of the two alarms",
        ),
    ]
    return facts + [Fact("Note", note) for note in found.notes]
