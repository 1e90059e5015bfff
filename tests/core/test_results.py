"""Results as JSON content, as rows, as HTML and as a pandas DataFrame."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure

from retinabench.core.errors import InputError
from retinabench.core.results import Document, IntervalRow, Tabular, draw_intervals, json_content


class Rows(Tabular):
    def __init__(self, rows):
        self.rows = rows

    def records(self):
        return self.rows

    def plot(self, axes=None):
        return axes


def test_html_escapes_names_and_writes_undefined_numbers_as_a_dash():
    html = Rows([{"model": "<b>", "value": 0.123456, "low": math.nan, "why": None}])._repr_html_()
    assert "<td>&lt;b&gt;</td><td>0.1235</td><td>–</td><td></td>" in html
    assert html.startswith("<table><thead><tr><th>model</th>")


def test_no_rows_are_an_empty_table():
    assert Rows([])._repr_html_() == "<table><thead><tr></tr></thead><tbody></tbody></table>"


def test_dataframe_has_the_rows():
    pytest.importorskip("pandas")
    frame = Rows([{"a": 1.0}, {"a": 2.0}]).to_dataframe()
    assert frame["a"].tolist() == [1.0, 2.0]


def test_without_pandas_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        Rows([]).to_dataframe()


def test_a_long_table_is_cut_in_html_alone():
    rows = Rows([{"a": k} for k in range(100)])
    assert rows._repr_html_().count("<tr>") == 61
    assert "<p>40 more rows</p>" in rows._repr_html_()


def test_intervals_are_drawn_from_top_to_bottom_with_their_goals():
    axes = Figure().subplots()
    rows = [IntervalRow("a", 0.5, 0.4, 0.6), IntervalRow("$b", 0.7, math.nan, math.nan, goal=0.8)]
    assert draw_intervals(rows, axes, label="AUROC", zero=True) is axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", r"\$b"]
    drawn = [line.get_xdata().tolist() for line in axes.lines if hasattr(line.get_xdata(), "tolist")]
    assert [0.4, 0.6] in drawn
    assert [0.8] in drawn
    assert axes.get_ylim() == (1.5, -0.5)


class Ends(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Part:
    ends: Ends
    values: np.ndarray


@dataclass(frozen=True)
class Whole(Document):
    _optional = ("why",)

    number: float
    parts: dict[str, Part]
    why: str | None = None

    @cached_property
    def twice(self) -> float:
        return 2 * self.number


def test_fields_are_the_content_and_what_is_cached_is_not():
    whole = Whole(np.nan, {"a": Part(Ends(0.0, np.inf), np.array([1, 2]))})
    assert np.isnan(whole.twice)
    content = whole.to_dict()
    assert content == {"number": None, "parts": {"a": {"ends": {"low": 0.0, "high": None}, "values": [1, 2]}}}
    assert Whole(np.float64(0.1), {}, "because").to_dict() == {"number": 0.1, "parts": {}, "why": "because"}
    assert json.dumps(content, allow_nan=False)


def test_a_document_within_another_says_itself_what_it_holds():
    assert json_content([Whole(1.0, {}), (np.bool_(True), np.float32(0.5), None)]) == [
        {"number": 1.0, "parts": {}}, [True, 0.5, None],
    ]  # fmt: skip


def test_what_is_no_content_is_refused():
    with pytest.raises(TypeError, match="object is no content of a document"):
        json_content({"a": object()})
