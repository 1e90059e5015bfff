"""The figures of the board show what the entries scored."""

import numpy as np
import pytest

from retinabench.fidelity.leaderboard.files import find_submissions, score_tasks
from retinabench.fidelity.leaderboard.pages import figures
from retinabench.reports.toolkit.style import mark


@pytest.fixture
def task(folder, evaluators):
    return score_tasks(find_submissions([folder]), evaluators)[0][0]


def test_every_entry_is_a_dot_at_its_value(task):
    figure = figures.board_figure(task)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [entry.title for entry in task.ordered]
    name = task.ranked_measures[0]
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() in "ox"]
    assert dots == pytest.approx([entry.scores["all"][name].quantity.value for entry in task.ordered])
    assert figures.board_width(task) == 180 + 290 * 2


def test_distance_over_gradients_has_a_line_for_an_entry_at_several_tiers(task):
    (axes,) = figures.budget_figure([task, task]).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines) >= {"Near", "Middling", "Far"}
    assert lines["Near"].get_xdata() == pytest.approx([8, 8])
    assert axes.get_xscale() == "log"


def test_a_floor_far_below_all_entries_is_not_drawn(task):
    near = figures.budget_figure([task, task]).axes[0]
    task.evaluator.floor["all"]["total_variation"] = 1e-9
    far = figures.budget_figure([task, task]).axes[0]
    assert len(near.lines) == len(far.lines) + 1
    assert far.get_ylim()[0] > 1e-4


def test_uncertainty_and_calibration_panels_draw_reference_and_methods():
    random = np.random.default_rng(0)
    probs, label = random.dirichlet(np.ones(3), 60), random.integers(0, 3, 60)
    (axes,) = figures.calibration_panel(label, probs, [(mark(0), probs)], gaussian=False).axes
    curves = [line.get_ydata() for line in axes.lines[1:]]  # the first is the diagonal
    assert curves[0] == pytest.approx(curves[1])
    (axes,) = figures.entropy_panel(probs, [(mark(0), probs)]).axes
    assert axes.get_xlim()[1] == pytest.approx(np.log(3))
    draws = random.normal(size=(60, 100))
    (axes,) = figures.calibration_panel(draws[:, 0], draws, [(mark(0), draws)], gaussian=True).axes
    assert axes.lines[1].get_xdata() == pytest.approx(figures.LEVELS)
    assert figures.std_panel(draws, [(mark(0), draws)]).axes[0].get_xlabel().startswith("predictive")
