import re
from importlib.resources import files
from pathlib import Path

import pytest

from retinabench.reports.toolkit.figures import HUES, INK, MUTED, PAPER, canvas, mark, math_free, save, to_svg


def luminance(color):
    """Relative luminance by WCAG 2.1."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def palettes() -> list[dict[str, str]]:
    css = (files("retinabench.reports.toolkit") / "templates" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in blocks[:2]]


def test_light_and_dark_are_readable_and_the_style_sheet_has_these_colours():
    for palette in palettes():
        for name in ("ink", "muted", "good", "bad", "pass", *(f"c{i}" for i in range(len(HUES)))):
            dark, bright = sorted(luminance(palette[one]) for one in (name, "paper"))
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (name, palette[name])
    light = palettes()[0]
    assert [light[f"c{i}"] for i in range(len(HUES))] == list(HUES)
    assert (light["ink"], light["muted"], light["paper"]) == (INK, MUTED, PAPER)


def test_marks_differ():
    assert len({mark(i) for i in range(24)}) == 24
    assert all(mark(i).hue != mark(i + 1).hue for i in range(23))


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


def test_a_dollar_sign_opens_no_mathematics():
    figure, [[axes]] = canvas(200, 100)
    axes.set_title(math_free("$\\frac{"))
    assert "frac" in to_svg(figure, "x", title="t", description="d")
