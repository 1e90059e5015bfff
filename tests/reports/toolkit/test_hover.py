"""Points of a figure stand where the figure draws them, also after its layout is found."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from retinabench.reports.toolkit.figures import canvas, to_svg
from retinabench.reports.toolkit.hover import Trace, points

X = np.array([0.0, 0.5, 1.0])


def content(markup):
    return json.loads(re.sub(r"</?script[^>]*>", "", markup))


def test_points_are_those_of_the_drawn_line():
    figure, [[axes]] = canvas(360, 260)
    (line,) = axes.plot(X, [2.0, 3.0, 1.0], label="a")
    axes.set(xlim=(0, 1), ylim=(0, 4), ylabel="value")
    to_svg(figure, "f", title="t", description="d")
    found = content(points(axes, "link", [Trace("k", "a", "c0", X, np.array([2.0, 3.0, 1.0]), "abc")], "xyz"))
    pixels = axes.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
    scale, height = 72 / figure.dpi, 72 * figure.get_size_inches()[1]
    expected = np.column_stack([scale * pixels[:, 0], height - scale * pixels[:, 1]])
    assert np.allclose(found["lines"][0]["points"], expected, atol=0.06)
    assert found["span"][:2] == pytest.approx(expected[[0, -1], 0], abs=0.06)
    assert (found["link"], found["heads"], found["lines"][0]["texts"]) == ("link", "xyz", "abc")


def test_undefined_values_have_no_point_and_others_stay_within_the_axes():
    figure, [[axes]] = canvas(360, 260)
    axes.set(xlim=(0, 1), ylim=(0, 4))
    to_svg(figure, "f", title="t", description="d")
    trace = Trace(
        "k", "a", "c0", X, np.array([np.nan, 9.0, -1.0]), ["", "", ""], [0, 1, 2], np.array([0.1, 1 / 3, 1])
    )
    found = content(points(axes, "link", [trace]))
    line, (_, _, bottom, top) = found["lines"][0], found["span"]
    assert line["points"][0] is None
    assert [one[1] for one in line["points"][1:]] == [top, bottom]
    assert line["to"] == [0, 1, 2]
    assert line["cuts"] == [0.1, 0.333333, 1.0]


def test_a_text_cannot_end_the_script():
    _, [[axes]] = canvas(360, 260)
    trace = Trace("k", "</script><b>", "c0", X, X, ["<!--", "]]>", "&"])
    markup = points(axes, "link", [trace])
    assert markup.count("<") == 2
    assert content(markup)["lines"][0]["name"] == "</script><b>"
