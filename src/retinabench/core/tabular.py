"""Results that can be shown as a table: in a notebook, and as a pandas DataFrame."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING, Any

from retinabench.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


class Tabular(ABC):
    """A result whose numbers are also rows of a table."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per row, all with the same keys; NaN where a number is undefined."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise InputError(
                "to_dataframe needs pandas",
                hint="Install it with: pip install pandas. `records()` does without.",
            ) from None
        return pandas.DataFrame(self.records())

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table, which notebooks show."""
        rows = self.records()
        head = "".join(f"<th>{escape(str(name))}</th>" for name in (rows[0] if rows else {}))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row.values()) + "</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "–"
    return str(value)
