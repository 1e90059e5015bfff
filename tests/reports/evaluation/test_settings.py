"""The settings of a page: what `rb.report` takes, and the limits of the share referred."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.reports.evaluation.settings import EvaluationSettings


def test_report_takes_every_setting_with_the_same_default():
    taken = inspect.signature(rb.report).parameters
    assert {one.name: taken[one.name].default for one in fields(EvaluationSettings)} == {
        one.name: one.default for one in fields(EvaluationSettings)
    }


@pytest.mark.parametrize("share", [0.0, 0.009, 0.951, 1.0, float("nan")])
def test_a_share_outside_its_limits_is_refused(share):
    with pytest.raises(InputError, match="share referred"):
        EvaluationSettings(referred=share)
