"""The facts of an examination, and what follows from its intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.strategy_comparison import StrategyComparison, StrategyCourse
from retinabench.concepts.report.concept_rates import ExaminationReport
from retinabench.concepts.report.findings import (
    entangled,
    left_open,
    missed_goals,
    recognised,
    scarce_samples,
    strategy_order,
)
from retinabench.concepts.report.overlap import ConceptPair
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
    assert found.examination["rare"].counts["fn"] == 3
    assert missed_goals(found) == []
    [few] = scarce_samples(found)
    assert [rate.concept for rate in few.rates] == list(CONCEPTS)  # 41 positives are not the 46 that it takes
    assert [rate.of for rate in few.rates][2:] == [3, 0]
    assert few.needed == 46
    assert few.kind == "with"
    [group] = entangled(found)
    assert (group.names, group.most) == (["common", "twin"], 1)


def test_a_missed_goal_follows_from_the_simultaneous_interval(bank):
    always = ExaminationReport(examine(bank, lambda sample, concept: 0.1), GOALS)
    missed = {(one.rate.concept, one.rate.measure): one for one in missed_goals(always)}
    assert set(missed) == {("common", "sensitivity"), ("twin", "sensitivity")}
    one = missed["common", "sensitivity"]
    assert (one.rate.right, one.only_answer) == (0, "no")
    assert one.rate.simultaneous[1] < 0.85
    assert [rate.concept for rate in always.judged if rate.standing == "met"] == list(CONCEPTS)
    content = always.to_dict()
    assert [(one["concept"], one["finding"]) for one in content["findings"]][:2] == [
        ("common", "missed"), ("common", "met"),
    ]  # fmt: skip
    assert (content["goals"], content["bank"]["together"]) == (GOALS, [])


def test_without_a_goal_nothing_is_judged(bank):
    everything = ExaminationReport(examine(bank, examinee(bank)))
    assert missed_goals(everything) == everything.judged == scarce_samples(everything) == []
    assert {rate.standing for pair in everything.rates for rate in pair} == {"no goal"}
    only = replace(everything, goals={name: {"specificity": 0.8} for name in CONCEPTS})
    assert {one.rate.measure for one in missed_goals(only)} <= {"specificity"}
    assert {few.measure for few in scarce_samples(only)} <= {"specificity"}


def test_groups_of_concepts_are_joined():
    pairs = [ConceptPair(("a", "b"), 9, 2), ConceptPair(("c", "d"), 9, 0), ConceptPair(("b", "c"), 9, 1)]
    bank = Bank(None, list("abcde"), np.zeros((1, 5), np.int8))
    [group] = entangled(ExaminationReport(examine(bank, lambda *_: 0.5), together=pairs))
    assert (group.names, group.most) == (list("abcd"), 2)


def test_strategies_are_compared_with_random_over_the_middle():
    steps = np.arange(21)
    bank = Bank(None, ["x"], np.repeat([[0], [1]], 10, axis=0).astype(np.int8))
    report = ExaminationReport(examine(bank, lambda *_: 0.5))

    def curve(shift):
        mean = 2 - 0.05 * steps + shift
        return StrategyCourse(mean, mean - 0.1, mean + 0.1, {})

    strategies = {"random": curve(0), "fast": curve(-0.3), "slow": curve(0.3), "alike": curve(0.05)}
    order = strategy_order(report, StrategyComparison(steps, 2, "std", "corrected", strategies))
    assert (order.faster, order.slower, order.compared, order.complete) == (["fast"], ["slow"], True, True)
    del strategies["random"]
    order = strategy_order(report, StrategyComparison(steps[:-1], 2, "std", "corrected", strategies))
    assert (order.faster, order.compared, order.complete) == ([], False, False)


def test_what_was_not_asked_is_said(bank):
    asked = ExaminationReport(examine(bank, examinee(bank), questions=1, strategy="random"), GOALS)
    leads = [rate.concept for rate in left_open(asked)]
    # Only cells that can still settle something: with 3 and 0 positives two of them cannot.
    assert (
        leads.count("common") == 1
    )  # 44 positives cannot show a sensitivity of 85 % among 7 rates, 76 negatives can
    assert leads.count("rare") == 1
    # A kind that was asked completely is not open, even where its interval for new samples reaches over the goal.
    wrong = np.flatnonzero(bank.truth[:, 0] == 1)[: round(0.15 * 44)]
    knows = examinee(bank)
    mostly = examine(
        bank,
        lambda k, name: 0.9 * bank.truth[k, 0] * (k not in wrong) if name == "common" else knows(k, name),
    )
    everything = ExaminationReport(mostly, GOALS)
    assert everything.rates[0][0].standing == "open"
    assert left_open(everything) == []
