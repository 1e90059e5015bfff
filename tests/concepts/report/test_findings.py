"""The facts of an examination, and what follows from its intervals."""

from __future__ import annotations

import numpy as np

from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.report.concept_rates import rates
from retinabench.concepts.report.findings import (
    entangled,
    findings,
    left_open,
    met_goals,
    missed_goals,
    recognised,
    scarce_samples,
    strategy_order,
)
from support.examinees import CONCEPTS, examinee

COMMON = {"sensitivity": 0.85, "specificity": 0.8}
GOALS = dict.fromkeys(CONCEPTS, COMMON)


def test_model_and_data_are_judged_apart(found):
    said = recognised(found)
    assert (said.recognised, said.open, said.reversed, said.unknown) == (
        ["common", "twin"],
        ["rare"],
        [],
        ["absent"],
    )
    # Three wrong answers about `rare` may be bad luck where seven rates are looked at.
    assert found["concepts"]["rare"]["counts"]["fn"] == 3
    assert missed_goals(found) == []
    [few] = scarce_samples(found)
    assert [rate.concept for rate in few.rates] == list(CONCEPTS)  # 41 positives are not the 46 that it takes
    assert [rate.of for rate in few.rates][2:] == [3, 0]
    assert few.needed == 46
    assert few.kind == "with"
    [group] = entangled(found)
    assert (group.names, group.most) == (["common", "twin"], 1)


def test_a_missed_goal_follows_from_the_simultaneous_interval(bank):
    always = examine(bank, lambda sample, concept: 0.1).to_dict() | {"goals": GOALS}
    missed = {(one.rate.concept, one.rate.measure): one for one in missed_goals(always)}
    assert set(missed) == {("common", "sensitivity"), ("twin", "sensitivity")}
    one = missed["common", "sensitivity"]
    assert (one.rate.right, one.only_answer) == (0, "no")
    assert one.rate.simultaneous[1] < 0.85
    met = [rate.concept for rate in met_goals(always)]
    assert met == list(CONCEPTS)
    assert [(one["concept"], one["finding"]) for one in findings(always)][:2] == [
        ("common", "missed"), ("common", "met"),
    ]  # fmt: skip


def test_without_a_goal_nothing_is_judged(bank):
    everything = examine(bank, examinee(bank)).to_dict()
    assert missed_goals(everything) == met_goals(everything) == scarce_samples(everything) == []
    assert {rate.standing for pair in rates(everything) for rate in pair} == {"no goal"}
    only = everything | {"goals": {name: {"specificity": 0.8} for name in CONCEPTS}}
    assert {one.rate.measure for one in missed_goals(only)} <= {"specificity"}
    assert {few.measure for few in scarce_samples(only)} <= {"specificity"}


def test_groups_of_concepts_are_joined():
    pairs = [
        {"concepts": ["a", "b"], "one": 2},
        {"concepts": ["c", "d"], "one": 0},
        {"concepts": ["b", "c"], "one": 1},
    ]
    [group] = entangled({"bank": {"concepts": list("abcde"), "together": pairs}})
    assert (group.names, group.most) == (list("abcd"), 2)


def test_strategies_are_compared_with_random_over_the_middle():
    steps = np.arange(21)
    bank = {"bank": {"positives": {"x": 10}, "negatives": {"x": 10}}}

    def curve(shift):
        mean = 2 - 0.05 * steps + shift
        return {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}

    strategies = {"random": curve(0), "fast": curve(-0.3), "slow": curve(0.3), "alike": curve(0.05)}
    order = strategy_order(bank, {"questions": steps, "strategies": strategies})
    assert (order.faster, order.slower, order.compared, order.complete) == (["fast"], ["slow"], True, True)
    del strategies["random"]
    order = strategy_order(bank, {"questions": steps[:-1], "strategies": strategies})
    assert (order.faster, order.compared, order.complete) == ([], False, False)


def test_what_was_not_asked_is_said(bank):
    asked = examine(bank, examinee(bank), questions=1, strategy="random").to_dict() | {"goals": GOALS}
    leads = [rate.concept for rate in left_open(asked)]
    # Only cells that can still settle something: with 3 and 0 positives two of them cannot.
    assert (
        leads.count("common") == 1
    )  # 44 positives cannot show a sensitivity of 85 % among 7 rates, 76 negatives can
    assert leads.count("rare") == 1
    everything = examine(bank, examinee(bank)).to_dict() | {"goals": GOALS}
    # A kind that was asked completely is not open, even where its interval for new samples reaches over the goal.
    counts = everything["concepts"]["common"]["counts"]
    positives = counts["tp"] + counts["fn"]
    counts |= {"tp": round(0.85 * positives), "fn": positives - round(0.85 * positives)}
    assert rates(everything)[0][0].standing == "open"
    assert left_open(everything) == []
