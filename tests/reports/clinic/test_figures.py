"""The clinic's figures hold the numbers of the report."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.reports.clinic.figures import READER, calibration_panel, decision_panel, missed_panel
from retinabench.reports.toolkit.style import BAD, GOOD
from support.screened import screened


@pytest.fixture(scope="module")
def one():
    return rb.clinic(screened(80), referral_rate=0.2)["in_domain"]


def line(axes, color):
    return next(found for found in axes.lines if found.get_color() == color)


def test_missed_disease_falls_from_the_models_own_misses_to_none(one):
    [axes] = missed_panel(one).axes
    drawn = line(axes, BAD)
    table = one.images.table
    assert drawn.get_ydata()[0] == pytest.approx(table.fn / (table.fn + table.tp))
    assert drawn.get_ydata()[-1] == 0
    assert (np.diff(drawn.get_ydata()) <= 1e-12).all()
    [point] = axes.containers
    assert point.lines[0].get_xdata()[0] == pytest.approx(one.workload.images.value)
    assert point.lines[0].get_ydata()[0] == pytest.approx(one.missed.referable.value)


def test_the_reader_is_drawn_only_where_images_are_referred(one):
    [with_reader] = decision_panel(one).axes
    [alone] = decision_panel(rb.clinic(screened(80))["in_domain"]).axes
    assert line(with_reader, READER.color) is not None
    assert READER.color not in [found.get_color() for found in alone.lines]


def test_treating_all_has_the_net_benefit_of_the_prevalence(one):
    [axes] = decision_panel(one).axes
    threshold, benefit = axes.lines[0].get_xdata(), axes.lines[0].get_ydata()
    share = (one.images.table.tp + one.images.table.fn) / sum(vars(one.images.table).values())
    assert np.allclose(benefit, share - (1 - share) * threshold / (1 - threshold))


def test_calibration_is_drawn_by_groups_of_images(one):
    [axes] = calibration_panel(one.calibration).axes
    drawn = line(axes, GOOD)
    assert drawn.get_xdata().tolist() == [group.forecast for group in one.calibration.curve]
    assert drawn.get_ydata().tolist() == [group.observed.value for group in one.calibration.curve]


def test_the_net_benefit_of_a_single_patient_has_no_interval_and_is_drawn():
    two = rb.Predictions(
        np.array(["a", "b"]), np.array([0, 1], np.int8), np.array([0.2, 0.7]), patient_id=np.array(["p", "p"])
    )
    [axes] = decision_panel(rb.clinic(two)["in_domain"]).axes
    assert axes.get_ylim()[1] == pytest.approx(1.05 * 0.5)
