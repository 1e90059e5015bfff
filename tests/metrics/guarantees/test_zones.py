"""The ends of the zones: violations by simulation, invariances, zones that would meet."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.risks import ReferralCases
from retinabench.metrics.guarantees.zones import (
    certified_ends,
    plain_ends,
    zone_cases,
    zone_certificates,
    zone_goals,
)
from support.dependent_images import drawn_with_ties as draw

GOALS = ["npv=.9", "sensitivity=.8", "ppv=.75"]


def test_zones_are_broken_at_most_at_their_level():
    """15 studies of 250 patients, both zones at 10 % together: the SE of a share of 10 % is 7.7 %."""
    goals = zone_goals(GOALS)
    people, population = draw(np.random.default_rng(99), 50_000)
    broken = certified = 0
    for study in range(15):
        cases, prob = draw(np.random.default_rng([8, study]), 250)
        certificates = zone_certificates(cases, prob, goals, 0.1)
        for (side, of), end in zip(goals.items(), certified_ends(cases, prob, certificates), strict=True):
            if end is None:
                continue
            certified += 1
            as_zone = zone_cases(people, population, side)
            sums = [goal.spec.sums(as_zone, end if side == "negative" else -end) for goal in of]
            risks = [num.sum() / den.sum() for num, den in sums]
            broken += any(risk > goal.max_risk for risk, goal in zip(risks, of, strict=True))
    assert certified > 7
    assert broken / 15 <= 0.1 + 2 * 0.077


def test_neither_rows_nor_names_change_the_zones():
    cases, prob = draw(np.random.default_rng(3), 500)
    rng = np.random.default_rng(4)
    rows, names = rng.permutation(len(cases)), rng.permutation(500)
    other = ReferralCases(
        cases.label[rows], cases.positive[rows], prob[rows], names[cases.patient[rows]], cases.weight[rows],
        cases.severe[rows],
    )  # fmt: skip
    goals = zone_goals(GOALS)
    found = zone_certificates(cases, prob, goals, 0.1)
    assert all(one.granted and one.delta == 0.05 for one in found.values())
    assert zone_certificates(other, prob[rows], goals, 0.1) == found
    assert certified_ends(other, prob[rows], found) == certified_ends(cases, prob, found)


def test_zones_that_would_meet_share_the_images():
    """Both goals are so low that each zone could take nearly all images; no image is read, and the negative zone is the smaller one."""
    cases, prob = draw(np.random.default_rng(5), 600)
    goals = zone_goals(["npv=.6", "ppv=.3"])
    found = zone_certificates(cases, prob, goals, 0.1)
    wide = found["negative"].threshold, -found["positive"].threshold
    a, b = certified_ends(cases, prob, found)
    assert wide[1] < wide[0]
    assert b - a < 0.02
    assert not ((prob > a) & (prob < b)).any()
    assert found["negative"].begins <= a <= wide[0]
    assert wide[1] <= b <= -found["positive"].begins
    assert b == wide[1] or a == found["negative"].begins
    alone = {"negative": found["negative"]}
    assert certified_ends(cases, prob, alone) == (min(wide[0], prob.max()), None)


def test_plain_ends_by_hand():
    """NPV of 0.75 allows one of the four lowest to be referable; PPV of 1 the two highest alone."""
    prob = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    label = np.array([0, 1, 0, 0, 1, 1, 1], bool)
    label[4] = False
    cases = ReferralCases(label, prob > 0.5, prob, np.arange(7), np.ones(7))
    assert plain_ends(cases, prob, zone_goals(["npv=.75", "ppv=.99"])) == (0.5, 0.6)
    assert plain_ends(cases, prob, zone_goals(["ppv=.99"])) == (None, 0.6)


def test_each_goal_belongs_to_one_zone():
    found = zone_goals(["npv=.9", "ppv=.8", "specificity=.7"])
    assert {side: [goal.target for goal in goals] for side, goals in found.items()} == {
        "negative": ["npv"], "positive": ["ppv", "specificity"],
    }  # fmt: skip
    with pytest.raises(InputError, match="the zones have no goal"):
        zone_goals([])


@pytest.mark.parametrize("delta", [1.0, 1.5, 95.0])
def test_delta_is_checked_before_the_zones_share_it(delta):
    label, prob = np.array([0, 1] * 20, bool), np.linspace(0, 1, 40)
    cases = ReferralCases(label, prob > 0.5, prob, np.arange(40), np.ones(40))
    with pytest.raises(InputError, match=f"delta is {delta:g}"):
        zone_certificates(cases, prob, zone_goals(["npv=.9", "ppv=.8"]), delta)
