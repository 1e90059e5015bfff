"""Results as the JSON content of documents, and in notebooks as a table, as a pandas DataFrame and as a figure.

matplotlib is loaded by the first plot, never by a score. The figures of pages and files have a style of their own, see
`retinabench.reports.toolkit.figures`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from retinabench.core.errors import shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BLUE, VERMILION, GREY = "#0067a5", "#c4461a", "#6a6a66"
SHOWN = 60  # Rows of a longer table that a notebook shows; `to_dataframe` has all.


JsonObject = dict[str, Any]
"""A JSON or TOML object where it enters or leaves the package; results that functions hand on are dataclasses."""


class Document:
    """Base of dataclasses whose fields, in their order, are their JSON content.

    A subclass changes that by class variables, in place of a `to_dict` of its own:

    - `_schema`: its name and version, written first as `schema`;
    - `_also`: properties that follow the fields;
    - `_hidden`: fields that are not written;
    - `_optional`: fields and properties that are left out where they are None;
    - `_inline`: those whose own keys join those of the document, without a level of their own;
    - `_keys`: field or property -> its key, where that differs.

    Example:
        >>> @dataclass(frozen=True)
        ... class Missed(Document):
        ...     _also, _optional, _keys = ("share",), ("why",), {"of": "images"}
        ...     missed: int
        ...     of: int
        ...     why: str | None = None
        ...     share = property(lambda self: self.missed / self.of)
        >>> Missed(1, 4).to_dict()
        {'missed': 1, 'images': 4, 'share': 0.25}
    """

    _schema: ClassVar[str] = ""
    _also: ClassVar[Sequence[str]] = ()
    _hidden: ClassVar[Collection[str]] = ()
    _optional: ClassVar[Collection[str]] = ()
    _inline: ClassVar[Collection[str]] = ()
    _keys: ClassVar[Mapping[str, str]] = {}

    def to_dict(self) -> JsonObject:
        """Return the JSON content: plain dictionaries, lists, text, finite numbers, and None where a number is undefined."""
        content: JsonObject = {"schema": self._schema} if self._schema else {}
        for name in (*vars_of(self), *self._also):
            if name in self._hidden:
                continue
            value = json_content(getattr(self, name))
            if value is None and name in self._optional:
                continue
            if name in self._inline:
                content |= value
            else:
                content[self._keys.get(name, name)] = value
        return content


def vars_of(result: object) -> dict[str, object]:
    """Return the fields of a dataclass in their order; unlike `vars`, without what it has cached."""
    return {field.name: getattr(result, field.name) for field in fields(result)}  # type: ignore[arg-type]


def json_content(value: object) -> Any:
    """Return a value as JSON holds it.

    Dataclasses, pydantic models and named tuples become objects, arrays and sequences lists, dates text, paths what
    `errors.shown` shows of them; NaN and infinity become None.

    Example:
        >>> json_content({"score": float("nan"), "counts": (1, 2)})
        {'score': None, 'counts': [1, 2]}
    """
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "tolist"):  # of NumPy, which errors are said without
        return json_content(value.tolist())
    if is_dataclass(value):
        return json_content(vars_of(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return json_content(value._asdict())
    if isinstance(value, Mapping):
        return {key: json_content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_content(item) for item in value]
    if isinstance(value, date):
        return str(value)
    if isinstance(value, PurePath):
        return shown(value)
    raise TypeError(f"{type(value).__name__} cannot be part of a document")


Row = dict[str, str | float | None]  # A row of a table: column -> text or number.


class Tabular(ABC):
    """A result whose numbers are also rows of a table."""

    @abstractmethod
    def records(self) -> list[Row]:
        """Return one dictionary per row, all with the same keys; NaN where a number is undefined."""

    @abstractmethod
    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the result."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a DataFrame; needs pandas, without which `records` does."""
        import pandas

        return pandas.DataFrame(self.records())

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table, which notebooks show."""
        rows = self.records()
        head = "".join(f"<th>{escape(str(name))}</th>" for name in (rows[0] if rows else {}))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row.values()) + "</tr>"
            for row in rows[:SHOWN]
        )
        more = f"<p>{len(rows) - SHOWN:,} more rows</p>" if len(rows) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


@dataclass(frozen=True)
class IntervalRow:
    """One line of an interval plot: a value, the ends of its interval (NaN: none), and the value aimed at, if any."""

    label: str
    value: float
    low: float
    high: float
    goal: float | None = None


def axes_or_new(axes: Axes | None, height: float = 3.2) -> Axes:
    """Return the axes that the user gave, or those of a new figure of this height in inches."""
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(6.4, height), layout="constrained")[1]


LONG = 12  # Rows above which the numbers of an axis are repeated at its top.


def draw_intervals(rows: Sequence[IntervalRow], axes: Axes | None, *, label: str = "", zero: bool = False) -> Axes:
    """Draw values and their intervals as one horizontal line each, from top to bottom."""
    axes = axes_or_new(axes, 0.9 + 0.28 * max(len(rows), 2))
    if zero:
        axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    for place, row in enumerate(rows):
        axes.plot([row.low, row.high], [place, place], color=BLUE, linewidth=1.6)
        axes.plot([row.value], [place], "o", color=BLUE, markersize=5)
        if row.goal is not None:
            axes.plot([row.goal], [place], "|", color=VERMILION, markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(rows)), [row.label.replace("$", r"\$") for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(label)
    axes.tick_params(labeltop=len(rows) > LONG)
    return axes


def number_text(value: float) -> str:
    """Return the shortest text that only this number has, whole ones without a point: keys and names are made of it."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e16 else repr(float(value))


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "–"
    return str(value)
