import math
from dataclasses import astuple

import numpy as np
import pytest

import retinabench as rb
from retinabench.metrics.clinical import screening_table
from retinabench.metrics.clinical.screening_table import policy_grid
from support.screened import screened

READER = (0.8, 0.9)


@pytest.fixture(scope="module")
def predictions():
    return screened(80, camera_drop=2.0)


@pytest.fixture(scope="module", params=["total", "margin"])
def screening(predictions, request):
    options = {"reader": READER, "uncertainty": request.param, "subgroups": ["camera"]}
    report = rb.clinic(predictions, 0.35, referral_rate=0.25, **options)
    return report, policy_grid(predictions, report.stated)


def test_the_frozen_pair_is_that_of_the_report(screening):
    report, grid = screening
    i, j = grid.frozen
    assert grid.thresholds[i] == report.threshold
    assert grid.rules[j] == report.referral
    for name, one in report.sets.items():
        found, read = grid.outcomes[name][""][i][j], one.readings["reader"]
        pairs = [
            (found.sensitivity, read["sensitivity"]), (found.specificity, read["specificity"]),
            (found.missed, one.missed.referable), (found.missed_severe, one.missed.severe),
            (found.referred, one.workload.images), (found.referred_patients, one.workload.patients),
        ]  # fmt: skip
        for here, there in pairs:
            assert astuple(here) == pytest.approx(astuple(there), rel=1e-12)
        missed = [image.image_id for image in grid.images[name] if image.missed(i, j)]
        assert missed == [image.image_id for image in one.missed.images]


def test_an_outcome_by_hand(screening, predictions):
    report, grid = screening
    i, j = 6, 8
    cut, rule = grid.thresholds[i].value, grid.rules[j]
    part = predictions.select(domain="in_domain", split="test")
    reference = predictions.select(domain="in_domain", split="validation")

    def uncertainty(p):
        logit = np.log(p / (1 - p))
        return -abs(logit - np.log(cut / (1 - cut)) * (report.referral.uncertainty == "margin"))

    limit = np.sort(uncertainty(reference.prob))[::-1][math.floor(rule.rate * len(reference))]
    for group, rows in {"": np.ones(len(part), bool), "camera: A": part.subgroups["camera"] == "A"}.items():
        y, p = part.label[rows] == 1, part.prob[rows]
        sent, said = uncertainty(p) > limit, p >= cut
        tp = (y & said & ~sent).sum() + READER[0] * (y & sent).sum()
        fp = (~y & said & ~sent).sum() + (1 - READER[1]) * (~y & sent).sum()
        found = grid.outcomes["in_domain"][group][i][j]
        assert found.sensitivity.value == pytest.approx(tp / y.sum())
        assert found.specificity.value == pytest.approx(1 - fp / (~y).sum())
        assert found.ppv.value == pytest.approx(tp / (tp + fp))
        assert found.npv.value == pytest.approx(((~y).sum() - fp) / (len(y) - tp - fp))
        assert found.missed_images == (y & ~said & ~sent).sum()
        assert found.ppv.low < found.ppv.value < found.ppv.high


def test_images_are_listed_as_they_are_counted_and_rules_refer_more_and_more(screening):
    _, grid = screening
    for name, groups in grid.outcomes.items():
        for i, row in enumerate(groups[""]):
            shares = [one.referred.value for one in row]
            assert shares == sorted(shares)
            for j, one in enumerate(row):
                assert sum(image.missed(i, j) for image in grid.images[name]) == one.missed_images
    assert grid.to_dict()["frozen"] == list(grid.frozen)


def test_a_group_lists_its_own_images_and_memory_is_bounded(screening, predictions, monkeypatch):
    report, grid = screening
    for name, groups in grid.outcomes.items():
        for k, (i, j) in ((1, (3, 2)), (2, (8, 5))):
            missed = [one for one in grid.images[name] if one.missed(i, j) and k in one.groups]
            assert len(missed) == list(groups.values())[k][i][j].missed_images
    monkeypatch.setattr(screening_table, "MOST_CELLS", 3 * 160)  # three rules of 160 images at a time, and two at last
    again = policy_grid(predictions, report.stated, most_groups=1)
    assert len(again.outcomes["in_domain"]) == 2
    for here, there in zip(again.outcomes["shifted"][""][4], grid.outcomes["shifted"][""][4], strict=True):
        assert astuple(here.ppv) == pytest.approx(astuple(there.ppv), rel=1e-12, nan_ok=True)
        assert here.missed_images == there.missed_images


def test_without_referral_and_grades_the_frozen_rule_refers_none():
    predictions = rb.Predictions(list("abcd"), [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.4])
    grid = policy_grid(predictions, rb.clinic(predictions).stated)
    found = grid.outcomes["in_domain"][""][grid.frozen[0]][grid.frozen[1]]
    assert (found.referred.value, found.missed_images, found.missed_severe_images) == (0, 1, 0)
    assert math.isnan(found.missed_severe.value)
