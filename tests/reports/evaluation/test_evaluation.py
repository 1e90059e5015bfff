"""Paired differences, the best method and the leader."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.comparison import compare
from retinabench.reports.evaluation.evaluate import evaluate_methods
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.page import render
from retinabench.reports.evaluation.policies import policy_grids
from retinabench.reports.evaluation.verdict.findings import verdict
from support.fake_predictions import population, predictions


def test_a_method_is_never_better_than_itself():
    found = predictions("MC dropout", 0, population(200, 100))
    evaluation = evaluate_methods(
        [MethodPredictions.of("a", found), MethodPredictions.of("b", found)],
        EvaluationSettings(bootstrap=20),
    )
    gap = evaluation.difference(0, 1, "joint", "auroc")
    assert (gap.value, gap.sign()) == (0.0, 0)
    assert np.isnan([gap.low, gap.high]).all()
    assert evaluation.best("joint", "auroc") is None
    order = verdict(evaluation).order
    assert order is not None
    assert (order.ahead, order.level) == ([], ["b"])
    assert "These images cannot tell “a” from “b”" in render(evaluation, policy_grids(evaluation), title="x")


def test_a_clearly_better_method_is_bold():
    people = population(400, 200)
    good = predictions("MC dropout", 0, people)
    noise = np.random.default_rng(0).uniform(size=len(good))
    poor = type(good)(good.image_id, good.label, noise, patient_id=good.patient_id, domain=good.domain)
    evaluation = evaluate_methods(
        [MethodPredictions.of("poor", poor), MethodPredictions.of("good", good)],
        EvaluationSettings(bootstrap=40),
    )
    assert evaluation.best("joint", "auroc") == 1
    assert evaluation.best("joint", "nll") == 1
    assert evaluation.leader == 1


def test_methods_on_other_images_are_not_ranked():
    whole = predictions("MC dropout", 0, population(200, 100))
    part = predictions("MAP", 0, population(200, 100)).take(np.arange(250))
    evaluation = evaluate_methods(
        [MethodPredictions.of("whole", whole), MethodPredictions.of("part", part)],
        EvaluationSettings(bootstrap=20),
    )
    assert not evaluation.same_images
    assert verdict(evaluation).order is None
    page = render(evaluation, policy_grids(evaluation), title="x")
    assert "The methods were scored on different images: no ranking follows" in page
    assert "leads here because" not in page


def test_a_stated_difference_is_that_of_compare():
    people = population(200, 100)
    files = [predictions("MC dropout", seed, people) for seed in (0, 1)]
    methods = [MethodPredictions.of(name, one) for name, one in zip("ab", files, strict=True)]
    evaluation = evaluate_methods(methods, EvaluationSettings(bootstrap=60, seed=3))
    compared = compare(*files, bootstrap=60, seed=3, scores=["accuracy_at_50", "nll"]).sets["joint"].scores
    for name, other in compared.items():
        gap = evaluation.difference(0, 1, "joint", name)
        assert other.high > other.low
        assert (gap.value, gap.low, gap.high) == pytest.approx((other.difference, other.low, other.high))


def test_report_takes_every_setting_with_the_same_default():
    taken = inspect.signature(rb.report).parameters
    assert {one.name: taken[one.name].default for one in fields(EvaluationSettings)} == {
        one.name: one.default for one in fields(EvaluationSettings)
    }


@pytest.mark.parametrize("share", [0.0, 0.009, 0.951, 1.0, float("nan")])
def test_a_share_outside_its_limits_is_refused(share):
    with pytest.raises(InputError, match="share referred"):
        EvaluationSettings(referred=share)
