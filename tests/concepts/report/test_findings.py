"""The facts of an examination: intervals against closed forms, and what follows from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.report.findings import (
    ConceptRate,
    cut_offs,
    entangled,
    jeffreys,
    left_open,
    met_goals,
    missed_goals,
    needed,
    ranking,
    ranks_better_than_chance,
    rates,
    recognised,
    recognition,
    scarce_samples,
    strategy_order,
)
from support.examinees import CONCEPTS, examinee

GOALS = {"sensitivity": 0.85, "specificity": 0.8}


def test_model_and_data_are_judged_apart(found):
    said = recognised(found)
    assert (said.recognised, said.open, said.reversed, said.unknown) == (
        ["common", "twin"],
        ["rare"],
        [],
        ["absent"],
    )
    missed = {(one.rate.concept, one.rate.measure): one for one in missed_goals(found)}
    # The third claim was decided, and the questions ended, before all three positives had been asked.
    asked = found["concepts"]["rare"]["sensitivity"]["asked"]
    one = missed["rare", "sensitivity"]
    assert 0 < asked < 3
    assert (one.rate.asked, one.rate.of, one.rate.right, one.only_answer) == (asked, 3, 0, "no")
    assert cut_offs(found) == []  # two samples above a few others may be chance
    [few] = scarce_samples(found)
    assert [(rate.concept, rate.of) for rate in few.rates] == [("rare", 3), ("absent", 0)]
    assert few.kind == "with"
    [group] = entangled(found)
    assert (group.names, group.most) == (["common", "twin"], 1)


def test_one_goal_met_is_neither_failure_nor_adequacy():
    counts = {"tp": 40, "fn": 0, "tn": 8, "fp": 1}
    bank = {"samples": 49, "positives": {"x": 40}, "negatives": {"x": 9}}
    found = {"bank": bank, "concepts": {"x": {"counts": counts}}, "goals": GOALS}
    assert [rate.standing for rate in rates(found)[0]] == ["met", "open"]
    assert missed_goals(found) == met_goals(found) == []


def test_another_threshold_is_advised_where_the_ranking_is_no_chance(bank):
    everything = examine(bank, examinee(bank)).to_dict() | {"goals": GOALS}
    [one] = [one for one in missed_goals(everything) if one.rate.concept == "rare"]
    assert (one.rate.asked, one.rate.right) == (3, 0)
    [cut] = [cut for cut in cut_offs(everything) if cut.concept == "rare"]
    assert (cut.auroc, cut.sensitivity, cut.specificity) == (1.0, 1.0, 1.0)
    having = everything["concepts"]["rare"]["answers"]["with"]
    assert cut.threshold == min(having)  # an answer itself, not a bin of 0.02


def test_without_a_goal_nothing_is_judged(bank):
    everything = examine(bank, examinee(bank)).to_dict()
    assert missed_goals(everything) == met_goals(everything) == scarce_samples(everything) == []
    assert {rate.standing for pair in rates(everything) for rate in pair} == {"no goal"}
    only = everything | {"goals": {"specificity": 0.8}}
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
    assert leads.count("common") == 2
    assert leads.count("rare") == 1
    everything = examine(bank, examinee(bank)).to_dict() | {"goals": GOALS}
    # A kind that was asked completely is not open, even where its interval for new samples reaches over the goal.
    counts = everything["concepts"]["common"]["counts"]
    positives = counts["tp"] + counts["fn"]
    counts |= {"tp": round(0.85 * positives), "fn": positives - round(0.85 * positives)}
    assert rates(everything)[0][0].standing == "open"
    assert left_open(everything) == []


@pytest.mark.parametrize(
    ("without", "having", "rightly"),
    [
        ([0, 1], [2, 3], False),  # by chance once in 6
        (range(8), [20, 21], True),  # once in 45
        (range(7), [20, 21], False),  # once in 36, more than 2.5 %
        (range(8), [20, 3], False),
        ([5] * 20, [5] * 20, False),
        (range(40), range(5, 45), False),  # AUROC 0.61 of 40 and 40: asymptotic, z = 1.7
        (range(30), range(10, 40), True),
        ([3], [], False),
    ],
)
def test_ranking_better_than_chance_is_mann_and_whitneys_test(without, having, rightly):
    answers = {"without": [k / 50 for k in without], "with": [k / 50 for k in having]}
    assert ranks_better_than_chance({"answers": answers}) is rightly


def test_jeffreys_intervals_cover_on_average():
    # The mean coverage over p uniform is 95 % (to the order 1/n); Brown, Cai and DasGupta 2001, figure 5.
    for n in (7, 12, 40):
        p = (np.arange(2000) + 0.5) / 2000
        ends = np.array([jeffreys(k, n) for k in range(n + 1)])
        covered = (ends[:, :1] <= p) & (p <= ends[:, 1:])
        coverage = (covered * stats.binom.pmf(np.arange(n + 1)[:, None], n, p)).sum(axis=0).mean()
        assert coverage == pytest.approx(0.95, abs=0.012)
    assert jeffreys(0, 12)[0] == 0
    assert jeffreys(12, 12)[1] == 1


def test_the_number_needed_is_the_smallest_that_suffices():
    for goal in (0.5, 0.8, 0.85):
        least = needed(goal)
        assert jeffreys(least, least)[0] >= goal > jeffreys(least - 1, least - 1)[0]


@pytest.mark.parametrize(
    ("right", "verdict"),
    [
        ((95, 95), "recognised"),
        ((100, 0), "open"),
        ((50, 50), "open"),
        ((5, 5), "reversed"),
        ((30, 98), "recognised"),
    ],
)
def test_recognition_needs_more_than_a_habit_of_saying_yes_or_no(right, verdict):
    pair = [
        ConceptRate("x", m, k, 100, 100) for m, k in zip(("sensitivity", "specificity"), right, strict=True)
    ]
    assert recognition(*pair) == verdict


def test_guessing_is_seldom_called_recognition():
    # 20 positives and 40 negatives answered by a coin of any bias: both intervals must err for a false "recognised".
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        p = random.random()
        pair = (
            ConceptRate("x", "sensitivity", random.binomial(20, p), 20, 20),
            ConceptRate("x", "specificity", random.binomial(40, 1 - p), 40, 40),
        )
        wrong += recognition(*pair) == "recognised"
    assert wrong <= 12  # 3 %; the two-sided bound is 5 %


def test_answers_closer_than_a_bin_keep_their_order():
    """Twelve answers within 0.02: the AUROC of bins would be 0.5."""
    answers = {"without": [0.001 * k for k in range(8)], "with": [0.0075, 0.009, 0.010, 0.012]}
    assert ranking({"answers": answers}).auroc == 1.0


def test_the_ranking_is_the_auroc_of_the_answers(bank):
    from sklearn.metrics import roc_auc_score

    who = examinee(bank)
    found = examine(bank, who).to_dict()
    for place, concept in enumerate(CONCEPTS[:3]):
        said = [who(sample, concept) for sample in range(120)]
        expected = roc_auc_score(bank.truth[:, place], said)
        assert ranking(found["concepts"][concept]).auroc == pytest.approx(expected, abs=1e-12)
    assert ranking(found["concepts"]["absent"]) is None


def test_rates_are_those_of_the_counts(found):
    for sensitivity, specificity in rates(found):
        counts = found["concepts"][sensitivity.concept]["counts"]
        assert (sensitivity.right, specificity.right) == (counts["tp"], counts["tn"])
        assert sensitivity.asked == counts["tp"] + counts["fn"]
        assert specificity.of == found["bank"]["negatives"][sensitivity.concept]
