"""What the figures of the papers share."""

from __future__ import annotations

import numpy as np

from retinabench.reports.papers.figures.parts import control_line, file_name, method_legend, panel_grid
from retinabench.reports.papers.results import TaskResults
from retinabench.reports.toolkit.style import mark


def test_files_are_named_by_figure_and_task():
    results = TaskResults("country_shift", "", "", [], [])
    assert file_name("results", "5", results) == f"figure-05-results-{results.slug}"


def test_panels_have_named_controls_and_one_legend():
    figure, axes = panel_grid(2, 3)
    assert [len(row) for row in axes] == [3, 3]
    control_line(axes[0][0], np.array([0.0, 1.0]), np.array([0.5, 0.5]), "random")
    control_line(axes[0][1], np.array([0.0, 1.0]), np.full(2, np.nan), "random")
    assert [len(panel.texts) for panel in axes[0]] == [1, 0, 0]
    method_legend(figure, ["MAP", "a $ b"], [mark(0), mark(1)])
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["MAP", r"a \$ b"]
