"""Marks of methods: no two alike within 24 methods, and colours that can be read on paper."""

from __future__ import annotations

import itertools
import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from retinabench.reports.toolkit.figures import (
    HUES,
    INK,
    MUTED,
    PAPER,
    VARIABLES,
    Mark,
    Trace,
    canvas,
    mark,
    math_free,
    points,
    save,
    thin,
    to_svg,
)


def luminance(color):
    """Relative luminance by WCAG 2.1."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_24_methods_have_24_marks_and_neighbours_differ_in_both():
    marks = [mark(k) for k in range(24)]
    assert len(set(marks)) == 24
    for a, b in itertools.pairwise(marks):
        assert a.hue != b.hue


def test_hues_have_the_contrast_of_text():
    for hue in HUES:
        light, dark = sorted((luminance(hue), luminance(PAPER)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, hue


def test_the_swatch_has_colour_and_pattern_of_the_line():
    one = Mark(2, 1)
    assert one.linestyle == (0, (5, 2))
    assert f"var(--c2, {HUES[2]})" in one.swatch
    assert "stroke-dasharray:10 4" in one.swatch
    assert "stroke-dasharray:none" in Mark(0, 0).swatch
    assert Mark(0, 0).linestyle == (0, None)
    assert VARIABLES[one.color] == "c2"


def luminance_of_figures(color: str) -> float:
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance_of_figures(a), luminance_of_figures(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def palettes() -> list[dict[str, str]]:
    css = (files("retinabench.reports.toolkit") / "templates" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in blocks[:2]]


def test_light_and_dark_are_readable():
    for palette in palettes():
        for name in ("ink", "muted", "good", "bad", "pass", *(f"c{i}" for i in range(len(HUES)))):
            assert contrast(palette[name], palette["paper"]) >= 4.5, (name, palette[name])


def test_the_style_sheet_has_the_colours_of_the_figures():
    light = palettes()[0]
    assert [light[f"c{i}"] for i in range(len(HUES))] == list(HUES)
    assert (light["ink"], light["muted"], light["paper"]) == (INK, MUTED, PAPER)


def test_marks_differ():
    assert len({mark(i) for i in range(24)}) == 24
    assert all(mark(i).hue != mark(i + 1).hue and mark(i).dash != mark(i + 1).dash for i in range(11))


def test_a_drawing_can_stand_beside_another():
    def drawing(name: str) -> str:
        figure, [[axes]] = canvas(200, 100)
        axes.plot([0, 1], [0, 1], color=INK, clip_on=True)
        return str(to_svg(figure, name, title="a < b", description="c & d"))

    one, two = drawing("one"), drawing("two")
    ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert one == drawing("one")
    assert "a &lt; b" in one
    assert "c &amp; d" in one
    assert f"var(--ink, {INK})" in one
    assert not re.search(r"http|font-family|<style|<metadata", one)


def test_tick_labels_keep_their_digits_and_coordinates_are_short():
    figure, [[axes]] = canvas(200, 100)
    axes.plot([0, 1], [0.945, 0.975], color=INK)
    axes.set_yticks([0.945, 0.96, 0.975], ["0.945", "0.960", "0.975"])
    svg = str(to_svg(figure, "ticks", title="0.12345", description="y is 0.98765"))
    assert re.findall(r">(0\.9\d+)<", svg) == ["0.945", "0.960", "0.975"]
    assert ">0.12345<" in svg
    assert not re.search(r"<(path|g|use)[^>]*\d\.\d{3,}", svg)


@pytest.mark.parametrize("name", ["svg", "png", "pdf"])
def test_saved_files_are_the_same_every_time(tmp_path: Path, name: str):
    def once(folder: str) -> bytes:
        figure, [[axes]] = canvas(200, 100)
        axes.plot([0, 1], [0, 1], color=INK)
        axes.set_title("AUROC")
        (tmp_path / folder).mkdir()
        [file] = save(figure, tmp_path / folder / "line.of.dots", (name,))
        assert file.name == f"line.of.dots.{name}"
        return file.read_bytes()

    first = once("a")
    assert first == once("b")
    if name == "svg":
        assert b"<text" not in first  # letters are outlines


def test_thinning_keeps_the_ends():
    x = np.arange(1001.0)
    kept = thin(x, 200)
    assert (len(kept), kept[0], kept[-1]) == (200, 0, 1000)
    assert thin(x[:5]).tolist() == [0, 1, 2, 3, 4]


def test_a_dollar_sign_opens_no_mathematics():
    figure, [[axes]] = canvas(200, 100)
    axes.set_title(math_free("$\\frac{"))
    assert "frac" in to_svg(figure, "x", title="t", description="d")


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
