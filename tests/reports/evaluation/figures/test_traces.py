"""Points that a reader can point at: their texts state the values of the curves, and they lead to the right bin."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from retinabench.reports.evaluation.evaluate import evaluate_methods
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.figures.drawing import referral_panel, roc_panel
from retinabench.reports.evaluation.figures.traces import (
    MOST_TRACES,
    PLACES,
    predicted_by_bin,
    referral_points,
    roc_points,
)
from support.fake_predictions import population, predictions


@pytest.fixture(scope="module")
def found():
    people = population(80, 60)
    methods = [MethodPredictions.of(f"m{k}", predictions("MAP", k, people)) for k in range(MOST_TRACES + 2)]
    return evaluate_methods(methods, EvaluationSettings(bootstrap=0))


def content(markup):
    return json.loads(re.sub(r"</?script[^>]*>", "", markup))


def test_referral_texts_are_the_curve_at_every_other_share(found):
    figure = referral_panel([], [], label="accuracy", limits=(0, 1), referred=0.5)
    points = content(referral_points(figure, found, "in_domain", "accuracy"))
    assert points["heads"][25] == "50 % referred"
    assert len(points["lines"]) == MOST_TRACES
    assert found.leading in [line["name"] for line in points["lines"]]
    first = points["lines"][0]
    value = found.curves[0, "in_domain", "accuracy"].y[::2][10]
    assert first["texts"][10].startswith(f"accuracy {value:.3f}")


def test_a_threshold_on_the_roc_curve_has_its_false_positive_rate_and_leads_to_its_bin(found):
    points = content(roc_points(roc_panel([]), found, "in_domain"))
    line = points["lines"][0]
    case = found.first(int(line["key"].partition("|")[0]), "in_domain")
    negatives = case.prob[~case.label]
    filled = np.flatnonzero(predicted_by_bin(case)[1])
    for place in (0, 10, 25, 50):
        cut = line["cuts"][place]
        assert (negatives > cut + 1e-6).mean() <= PLACES[place] + 1e-9
        assert case.bins_of(np.array([cut]))[0] >= filled[line["to"][place]]


def test_bins_hold_the_mean_of_their_probabilities(found):
    case = found.first(0, "in_domain")
    means, filled = predicted_by_bin(case)
    assert means.tolist() == pytest.approx([case.prob[case.bins == k].mean() for k in np.flatnonzero(filled)])
