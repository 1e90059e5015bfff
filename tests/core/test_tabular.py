"""Results as rows, as HTML and as a pandas DataFrame."""

from __future__ import annotations

import math
import sys

import pytest

from retinabench.core.errors import InputError
from retinabench.core.tabular import Tabular


class Rows(Tabular):
    def __init__(self, rows):
        self.rows = rows

    def records(self):
        return self.rows


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
