"""Lines and rows that all frozen rules share, from results that are set by hand."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace

from rich.console import Console

from retinabench.metrics.guarantees.certificate import Certificate
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.refutation import Refutation
from retinabench.metrics.guarantees.threshold import Realised
from retinabench.metrics.proportions import Interval
from retinabench.reports.guarantees.sets_table import broken_lines, goals_line, needed_lines, sets_table


def realised(images, missed_severe=(1, 9)):
    targets = {name: Interval(0.9, 0.8, 0.95) for name in ("sensitivity", "severe_sensitivity")}
    return Realised(images, 20, (700, 300), targets, (12, 100), missed_severe, {})


def rows(sets, targets, **options):
    out = io.StringIO()
    Console(file=out, width=100).print(
        sets_table(sets, [], targets, "image", **{"certified": False, **options})
    )
    return [re.sub(r"\s{2,}", "|", line.strip()) for line in out.getvalue().splitlines()]


def test_sets_are_columns_and_targets_stand_once():
    found = rows({"validation": realised(1000), "in_domain": realised(400)}, ["sensitivity", "sensitivity"])
    assert "Validation|In-domain" in found
    assert "images|1,000|400" in found
    assert "referable images missed|12 of 100|12 of 100" in found
    assert "grade 3-4 missed|1 of 9|1 of 9" in found
    assert len([line for line in found if line.startswith("sensitivity with expert|")]) == 1


def test_without_grades_in_every_set_nothing_is_said_of_them():
    found = rows(
        {"validation": realised(1000), "in_domain": realised(400, None)},
        ["sensitivity", "severe_sensitivity"],
    )
    assert not [line for line in found if "grade" in line or "severe" in line]


def test_a_certificate_has_a_row_only_where_it_was_asked_for():
    sets = {"validation": realised(10)}
    assert not [line for line in rows(sets, []) if line.startswith("certificate")]
    assert [line for line in rows(sets, [], certified=True) if line.startswith("certificate")]


@dataclass
class Frozen:
    """What the lines read of a result."""

    broken: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()


def test_goals_without_a_certificate_have_a_row_where_the_labels_judge_them():
    judged = Refutation(0.3, 0.1, 40, 0.001, 1.0, "broken", 1, 0.05)
    sets = {"validation": realised(10), "shifted": replace(realised(10), verdicts=(judged,))}
    assert "goals, by the labels|broken" in rows(sets, [])


def test_lines_about_broken_and_refused_certificates():
    assert broken_lines(Frozen()) == []
    assert broken_lines(Frozen(broken=("in_domain", "shifted"))) == [
        "Broken: the labels of In-domain and Shifted refute the certificate."
    ]
    assert broken_lines(Frozen(unmet=("shifted",))) == ["Broken: the labels of Shifted refute a goal."]
    refused = Certificate(None, 0.1, (), 300, 2, "too few", 4500)
    assert needed_lines(refused) == ["About 4,500 validation patients would be needed; there are 300."]
    assert needed_lines(None) == []


def test_the_line_of_goals_says_confidence_only_where_there_is_one():
    goals = [Goal("selective_risk", 0.1)]
    assert goals_line(goals, "image", None, claimed=False).startswith(
        "Goal, per image: error of the retained"
    )
    claim = goals_line(goals, "image", 0.05, claimed=True, each=", half each")
    assert claim.startswith("Claim, per image:")
    assert "with confidence 0.95 over the draw of the validation patients, half each." in claim
