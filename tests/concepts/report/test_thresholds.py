"""Ranking and thresholds, from exact answers."""

from __future__ import annotations

import pytest

from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.report.concept_rates import ExaminationReport
from retinabench.concepts.report.thresholds import cut_offs, ranks_better_than_chance, short_decimal
from support.examinees import examinee


def test_another_threshold_is_advised_where_the_ranking_is_no_chance(bank):
    everything = ExaminationReport(examine(bank, examinee(bank)))
    [cut] = [cut for cut in cut_offs(everything) if cut.concept == "rare"]
    assert (cut.auroc, cut.sensitivity, cut.specificity) == (1.0, 1.0, 1.0)
    answers = everything.examination["rare"].answers
    assert max(answers["without"]) < float(cut.threshold) <= min(answers["with"])


def test_the_threshold_is_the_shortest_decimal_that_cuts_there():
    assert short_decimal(0.1233, 0.12345678) == "0.1234"
    assert short_decimal(0.5, 0.7) == "0.7"
    assert short_decimal(0.12345677, 0.12345678) == "0.12345678"
    assert short_decimal(0.3, 1.0) == "1"
    third = 1 / 3
    assert float(short_decimal(third - 1e-16, third)) == third


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
    assert ranks_better_than_chance(answers) is rightly
