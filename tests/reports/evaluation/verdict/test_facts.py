"""Facts that follow from others: what referral does to the retained images, by hand."""

from __future__ import annotations

import pytest

from retinabench.reports.evaluation.verdict.facts import Retained, SetOutcome
from retinabench.reports.toolkit.number_format import Quantity

RATE = Quantity(0.9)


def retained(prevalence, share, accuracy):
    return Retained("in_domain", prevalence, share, RATE, RATE, RATE, RATE, accuracy)


@pytest.mark.parametrize(
    ("share", "change"),
    [(Quantity(0.2, 0.15, 0.25), -1), (Quantity(0.4, 0.35, 0.45), 1), (Quantity(0.32, 0.28, 0.36), 0), (Quantity(0.1), 0)],
)  # fmt: skip
def test_a_change_of_the_prevalence_is_shown_by_its_interval_alone(share, change):
    assert retained(0.3, share, RATE).change == change


@pytest.mark.parametrize(
    ("share", "accuracy", "below"),
    [(0.1, 0.88, True), (0.1, 0.9, False), (0.1, 0.93, False), (0.8, 0.79, True), (0.1, float("nan"), False)],
)
def test_the_baseline_always_answers_the_larger_class_of_the_retained(share, accuracy, below):
    assert retained(0.3, Quantity(share), Quantity(accuracy)).below_baseline is below


def test_counts_leave_the_set_out():
    assert SetOutcome("shifted", 2, 1, 4).counts == (2, 1, 4)
