"""Marks of methods: no two alike within 24 methods, and colours that can be read on paper."""

from __future__ import annotations

import itertools

from retinabench.reports.toolkit.style import HUES, PAPER, VARIABLES, Mark, mark


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
