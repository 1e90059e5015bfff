"""The board's tables: one content for the terminal, for Markdown and for the page.

Every task has a table for each group of test points: ranked entries first, then what another chain of the reference
would score, the noise floor, and the trivial submissions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from retinabench.fidelity.scoring.measures import MEASURES, RANKED
from retinabench.fidelity.scoring.resampling import ALL
from retinabench.reports.toolkit.number_format import plain

CEILING, FLOOR = "another chain (ceiling)", "noise floor"
COLUMNS = {
    "categorical": (
        "agreement", "total_variation", "epistemic_correlation", "epistemic_error", "disagreement_gap",
        "miscalibration", "regret", "accuracy", "nll", "referral_area",
    ),
    "gaussian": ("wasserstein", "w2", "w2_kit", "w2_as_printed", "rmse", "crps", "coverage_90"),
}  # fmt: skip
TERMINAL = {
    "categorical": ("agreement", "total_variation", "accuracy"),
    "gaussian": ("wasserstein", "crps"),
}
"""Those that fit 80 columns."""


@dataclass(frozen=True)
class Cell:
    """A value as text, and below it its interval or error, if any."""

    text: str
    below: str = ""


@dataclass(frozen=True)
class Row:
    """An entry, or a control: what is not ranked."""

    label: str
    cells: list[Cell]
    control: bool = False


@dataclass(frozen=True)
class Grid:
    """A table: header, rows, and what to know about it."""

    caption: str
    columns: list[str]
    rows: list[Row] = field(default_factory=list)
    note: str = ""


def task_grid(task: Mapping[str, Any], group: str, *, terminal: bool = False) -> Grid:
    """Return the table of one group of a task's test points, from a record of `board` or `score`."""
    likelihood = task["likelihood"]
    offered = (TERMINAL if terminal else COLUMNS)[likelihood]
    known = next(iter(task["entries"]))["groups"][group]
    names = [name for name in offered if name in known]
    relative = () if terminal else RANKED[likelihood]
    ranked = group == ALL and any("rank" in entry for entry in task["entries"])
    columns = ["rank"] * ranked
    for name in names:
        columns += [f"{MEASURES[name].label}\u00a0{'↑' if MEASURES[name].higher else '↓'}"]
        columns += ["÷ ceiling"] * (name in relative)
    columns += ["budget"]
    rows = []
    for entry in ordered(task["entries"], RANKED[likelihood][0]):
        cells = [_rank(entry)] * ranked
        for name in names:
            cells += [_value(entry["groups"][group][name])]
            cells += [_relative(entry["groups"][group][name])] * (name in relative)
        rows.append(Row(entry["title"], [*cells, _budget(entry)], entry["baseline"]))
    controls = [
        (CEILING, {name: one for name, one in task["ceiling"][group].items() if name in names}),
        (FLOOR, {name: {"value": one} for name, one in task["floor"][group].items() if name in names}),
    ]
    first = next((k for k, row in enumerate(rows) if row.control), len(rows))
    rows[first:first] = [
        _control(label, values, names, relative, ranked) for label, values in controls if values
    ]
    return Grid(f"{task['title']}: {_called(group, task)}", columns, rows, _note(task))


def strength_grid(task: Mapping[str, Any], name: str) -> Grid | None:
    """Return one measure by strength of the corruption, or None where the task knows no strengths."""
    strengths = [group for group in task["points"] if group[-1:].isdigit()]
    if not strengths:
        return None
    rows = [
        Row(entry["title"], [_value(entry["groups"][group][name]) for group in strengths], entry["baseline"])
        for entry in ordered(task["entries"], RANKED[task["likelihood"]][0])
    ]
    ceiling = Row(CEILING, [_value(task["ceiling"][group][name]) for group in strengths], True)
    first = next((k for k, row in enumerate(rows) if row.control), len(rows))
    rows.insert(first, ceiling)
    return Grid(f"{task['title']}: {MEASURES[name].label} by strength", strengths, rows)


def ranking_grid(found: Mapping[str, Any]) -> Grid | None:
    """Return the final ranking, or None where nothing is ranked."""
    if not found["ranking"]:
        return None
    names = list(found["ranking"][0]["by_measure"])
    tasks = found["ranking"][0]["tasks"]
    rows = [
        Row(row["title"], [_rank(row), *(Cell(plain(row["by_measure"][name], 2)) for name in names)])
        for row in found["ranking"]
    ]
    caption = (
        f"Mean rank over {tasks} tasks (extended track)" if tasks > 1 else "Rank (light track: one task)"
    )
    return Grid(caption, ["mean rank", *(f"rank by {MEASURES[name].label}" for name in names)], rows)


def shown_groups(task: Mapping[str, Any]) -> list[str]:
    """Return the groups that get tables of their own: all points, and the kinds where there are several."""
    kinds = [group for group in task["points"] if group != ALL and not group[-1:].isdigit()]
    return [ALL, *kinds] if len(kinds) > 1 else [ALL]


def console(grid: Grid) -> Table:
    """Return a table for the terminal."""
    table = Table(
        title=escape(grid.caption), title_justify="left", caption=escape(grid.note) or None,
        caption_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    table.add_column("", overflow="fold")
    for k, column in enumerate(grid.columns):
        cells = [line for row in grid.rows for line in (row.cells[k].text, row.cells[k].below)]
        table.add_column(column, justify="right", min_width=max(map(len, [*cells, *column.split(" ")])))
    for row in grid.rows:
        shown = (f"{cell.text}\n[dim]{cell.below}[/dim]" if cell.below else cell.text for cell in row.cells)
        table.add_row(escape(row.label), *shown, style="dim" if row.control else "")
    return table


def markdown(grid: Grid) -> str:
    """Return a table as Markdown; what stands below a value follows in brackets."""
    lines = [f"**{_plain_text(grid.caption)}**", "", "| | " + " | ".join(grid.columns) + " |"]
    lines.append("|---|" + "---:|" * len(grid.columns))
    for row in grid.rows:
        cells = (f"{cell.text} ({cell.below})" if cell.below else cell.text for cell in row.cells)
        label = _plain_text(row.label)
        lines.append(f"| {f'*{label}*' if row.control else label} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _plain_text(grid.note), ""] if grid.note else [*lines, ""])


def ordered(entries: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Ranked entries by rank, unranked ones by the first measure of the competition, baselines last."""
    sign = -1 if MEASURES[name].higher else 1

    def key(entry: Mapping[str, Any]) -> tuple[bool, float]:
        place = (
            entry["rank"]["rank"] if "rank" in entry else sign * (entry["groups"][ALL][name]["value"] or 0)
        )
        return entry["baseline"], place

    return sorted(entries, key=key)


def _control(
    label: str, values: Mapping[str, Any], names: Sequence[str], relative: Sequence[str], ranked: bool
) -> Row:
    cells = [Cell("–")] * ranked
    for name in names:
        cells += [_value(values[name]) if name in values else Cell("–")]
        cells += [Cell("–")] * (name in relative)
    return Row(label, [*cells, Cell("–")], True)


def _value(one: Mapping[str, Any]) -> Cell:
    if one["value"] is None:
        return Cell("–")
    digits = 3 if abs(one["value"]) < 10 else 1
    if one.get("error") is not None:
        return Cell(plain(one["value"], digits), f"± {plain(one['error'], digits)}")
    if one.get("low") is None or one.get("high") is None:
        return Cell(plain(one["value"], digits))
    low, high = plain(one["low"], digits), plain(one["high"], digits)
    return Cell(plain(one["value"], digits), f"{low} to {high}" if one["low"] < 0 else f"{low}–{high}")


def _relative(one: Mapping[str, Any]) -> Cell:
    return Cell("–" if one.get("relative") is None else plain(one["relative"], 2))


def _rank(entry: Mapping[str, Any]) -> Cell:
    place = entry.get("rank")
    if isinstance(place, Mapping):
        return _rank(place)
    if place is None:
        return Cell("–")
    below = "" if entry["low"] is None else f"{plain(entry['low'], 1)}–{plain(entry['high'], 1)}"
    return Cell(plain(place, 2), below)


def _budget(entry: Mapping[str, Any]) -> Cell:
    budget = entry["budget"]
    if not budget:
        return Cell("–")
    return Cell(f"{budget['used']:.0f}", f"over {budget['limit']:.0f}" if budget.get("over") else "")


def _called(group: str, task: Mapping[str, Any]) -> str:
    name = "all test points" if group == ALL else group.replace("_", "-")
    return f"{name} ({task['points'][group]:,})"


def _note(task: Mapping[str, Any]) -> str:
    reference = task["reference"]
    below = "In brackets or below: the 95 % interval over test points, or ± the standard error over seeds."
    if reference["passed"]:
        return below
    return f"No ranking: the reference fails its own diagnostics ({'; '.join(reference['why'])}). {below}"


def _plain_text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
