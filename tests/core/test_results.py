import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure

from retinabench.core.errors import Bars, InputError, printable
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

    # A document within another says itself what it holds.
    assert json_content([Whole(1.0, {}), (np.bool_(True), None)]) == [{"number": 1.0, "parts": {}}, [True, None]]
    with pytest.raises(TypeError, match="object cannot be part of a document"):
        json_content({"a": object()})


def test_the_message_names_file_row_column_and_hint():
    error = InputError("is empty", file="x.csv", row=3, column="grade", hint="Fill it in.")
    assert str(error) == "x.csv, row 3, column 'grade': is empty. Fill it in."
    assert (error.file, error.row, error.column) == ("x.csv", 3, "grade")
    assert str(InputError("nothing to do.")) == "nothing to do."
    assert str(InputError("nothing to do.", hint="Rest.")) == "nothing to do. Rest."


def test_messages_are_one_printable_line_of_limited_length():
    assert printable("a\nb\x1b[31m\x00") == "a\\nb\\x1b[31m\\x00"
    assert printable("ä €") == "ä €"
    assert len(printable("x" * 5000)) == 1000
    assert "\n" not in str(InputError("a\nb"))


def test_bars_are_on_standard_error_and_that_of_failed_work_does_not_stay_above_its_error(capsys):
    def work(steps):
        bars = Bars()
        with bars.track("Preparing", 3, unit="images") as advance:
            for step in steps:
                advance(step)
        bars.say("note: [not markup]")

    work([1, 2])
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/3" in err
    assert "note: [not markup]" in err
    with pytest.raises(TypeError):
        work([1, "two"])
    assert "Preparing" not in capsys.readouterr().err
