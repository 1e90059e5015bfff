from dataclasses import replace

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import ReaderPanel, majority
from retinabench.concepts.inference.claims import new_sequence
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.readers import enter_readers
from retinabench.concepts.questioning.referral import agreement, decisions
from retinabench.concepts.report import findings
from retinabench.concepts.report.findings import ConceptPair, ExaminationReport, parse_goals, short_decimal
from retinabench.concepts.report.page import render
from retinabench.core.errors import InputError
from retinabench.metrics.image_sets import FrozenThreshold
from retinabench.predictions.table import Predictions
from support.concept_banks import CONCEPTS as CONCEPTS_BESIDE_TABLES
from support.concept_banks import CONCEPTS as CONCEPTS_FINDINGS
from support.concept_banks import examinee

CONCEPTS = ("haemorrhage", "hard exudate")


def test_what_is_stated_for_one_concept_is_preferred():
    stated = ["sensitivity=0.85", "sensitivity of hard exudate = 0.6", "specificity of haemorrhage=.9"]
    found = parse_goals(stated, CONCEPTS)
    assert found == {"haemorrhage": {"sensitivity": 0.85, "specificity": 0.9}, "hard exudate": {"sensitivity": 0.6}}
    assert parse_goals([], CONCEPTS) == {}
    assert parse_goals(["sensitivity of haemorrhage = 85 %"], CONCEPTS) == {"haemorrhage": {"sensitivity": 0.85}}
    assert parse_goals(["specificity of haemorrhage=.9"], CONCEPTS) == {"haemorrhage": {"specificity": 0.9}}


def test_a_file(tmp_path):
    path = tmp_path / "goals.toml"
    path.write_text('[all]\nsensitivity = 0.8\n["hard exudate"]\nspecificity = 0.7\n')
    found = parse_goals([str(path)], CONCEPTS)
    assert found == {"haemorrhage": {"sensitivity": 0.8}, "hard exudate": {"sensitivity": 0.8, "specificity": 0.7}}
    with pytest.raises(InputError, match="twice"):
        parse_goals([str(path), "sensitivity=0.9"], CONCEPTS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sensitivity=85", "is not a goal"), ("sensitivity=85%%", "is not a goal"),
        ("sensitivity=100%", "is not a goal"), ("sensitivity=true", "is not a goal"),
        ("accuracy=0.9", "is not a goal"),
        ("sensitivity of hemorrhage=0.9", "unknown concept 'hemorrhage'. Did you mean 'haemorrhage'"),
        ("absent.toml", "does not exist"), ("sensitivity = 0.85\n", "'sensitivity' is not a table"),
        ("[all]\nsensitivity = '0.8'", "is not a goal"), ("[all]\nsensitivity = true", "is not a goal"),
        ("[all\n", "is not TOML"),
    ],
)  # fmt: skip
def test_what_is_no_goal_is_said_of_words_and_of_files(tmp_path, text, says):
    path = tmp_path / "goals.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        parse_goals([str(path) if "\n" in text else text], CONCEPTS)


def test_concepts_come_together_where_jaccard_says_so():
    truth = np.array([[1, 1, 0], [1, 1, 1], [1, 1, -1], [1, 0, 0], [1, 1, 0], [0, 0, 1]], np.int8)
    assert findings.together(Bank(None, ["a", "b", "c"], truth)) == [ConceptPair(("a", "b"), both=4, one=1)]


def test_another_threshold_is_advised_where_the_ranking_is_no_chance(bank):
    everything = ExaminationReport(examine(bank, examinee(bank)))
    [cut] = [cut for cut in findings.cut_offs(everything) if cut.concept == "rare"]
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
    assert findings.ranks_better_than_chance(answers) is rightly


def made(measure, right, asked, goal=None, alpha=0.05):
    return findings.ConceptRate(
        "x", measure, right, asked, asked, new_sequence(right, asked, 0.05), new_sequence(right, asked, alpha), goal
    )


def test_rates_are_those_of_the_counts(found):
    for sensitivity, specificity in found.rates:
        counts = found.examination[sensitivity.concept].counts
        assert (sensitivity.right, specificity.right) == (counts["tp"], counts["tn"])
        assert sensitivity.asked == counts["tp"] + counts["fn"]
        assert specificity.of == found.to_dict()["bank"]["negatives"][sensitivity.concept]
        assert specificity.interval == new_sequence(specificity.right, specificity.asked, 0.05)
        # The absent concept has no sensitivity: seven rates hold together.
        assert specificity.simultaneous == new_sequence(specificity.right, specificity.asked, 0.05 / 7)


def test_a_goal_is_missed_or_met_by_the_interval_of_all_rates():
    assert made("sensitivity", 3, 10, 0.85).standing == "missed"
    assert made("sensitivity", 3, 10, 0.85, alpha=1e-4).standing == "open"
    assert made("sensitivity", 60, 60, 0.85).standing == "met"
    assert made("sensitivity", 60, 60).standing == "no goal"


def test_two_answers_conclude_nothing_whatever_the_goal():
    two = made("sensitivity", 0, 2, 0.9999)
    assert two.simultaneous[1] < 0.9999
    assert two.standing == "open"
    assert made("sensitivity", 0, 3, 0.9999).standing == "missed"


@pytest.mark.parametrize(
    ("right", "verdict"),
    [((95, 95), "recognised"), ((100, 0), "open"), ((50, 50), "open"), ((5, 5), "reversed"), ((30, 98), "recognised")],
)
def test_recognition_needs_more_than_a_habit_of_saying_yes_or_no(right, verdict):
    pair = [made(m, k, 100) for m, k in zip(("sensitivity", "specificity"), right, strict=True)]
    assert findings.recognition(*pair) == verdict


def test_guessing_is_seldom_called_recognition():
    # 20 positives and 40 negatives answered by a coin of any bias: both intervals must err for a false "recognised".
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        p = random.random()
        pair = (made("sensitivity", random.binomial(20, p), 20), made("specificity", random.binomial(40, 1 - p), 40))
        wrong += findings.recognition(*pair) == "recognised"
    assert wrong <= 12  # 3 %; the two-sided bound is 5 %


def test_the_page_shows_the_shares(bank):
    result = examine(bank, examinee(bank))
    names = [bank.name(k) for k in range(120)]
    grade = (np.arange(120) % 3).astype(np.int8)
    predictions = Predictions(names, (grade >= 2).astype(np.int8), np.linspace(0, 1, 120), grade=grade)
    found = agreement(bank, result.record, decisions(bank, predictions, FrozenThreshold()))
    tables = findings.referral_tables(found)
    assert [row.label for row in tables[0].blocks[0].rows] == list(CONCEPTS_BESIDE_TABLES)
    assert [row.label for row in tables[1].blocks[0].rows] == ["0", "1", "2"]
    assert [row.label for row in tables[2].blocks[0].rows] == ["all", "0", "1", "2"]
    assert 'id="referral"' in render(ExaminationReport(result, referral=found))


@pytest.mark.parametrize("names", ["xyz", "vwxyz"])
def test_the_page_shows_the_readers(names):
    random = np.random.default_rng(0)
    votes = (random.random((90, 2, len(names))) < 0.5).astype(np.int8)
    bank = Bank(None, ("a", "b"), majority(votes, random))
    result = examine(bank, lambda sample, concept: float(bank.truth[sample, 0]), questions=60)
    found = enter_readers(result, ReaderPanel(tuple(names), votes, "majority"))
    sensitivity, specificity = findings.readers_tables(found.readers)
    rows = [*names, "random reader", "range of the readers"]
    assert [row.label for row in sensitivity.blocks[0].rows] == rows
    assert len(specificity.blocks[0].columns) == 2
    html = " ".join(render(ExaminationReport(found)).split())
    assert f"{len(names)} readers read the images" in html
    assert ("another panel of as many readers" in html) == (len(names) == 5)  # fewer say nothing of other panels


def test_a_goal_that_the_readers_leave_open_is_no_success_of_the_data():
    """All 200 were asked and most answered rightly, but the readers disagree about a third of the images."""
    random = np.random.default_rng(1)
    severity = random.random((200, 1))
    votes = (severity + random.normal(0, 0.2, (200, 5)) > 0.5).astype(np.int8)[:, None]
    bank = Bank(None, ("a",), majority(votes, random))
    result = examine(bank, lambda sample, concept: float(severity[sample, 0]))
    found = enter_readers(result, ReaderPanel(tuple("vwxyz"), votes, "majority"))
    report = ExaminationReport(found, {"a": {"sensitivity": 0.85}})
    assert [rate.concept for rate in findings.exhausted(report)] == ["a"]
    html = " ".join(render(report).split())
    assert "Sufficient samples" not in html
    whole = "<b>Not settled by this bank</b>, although every sample was asked"
    assert f"{whole}: sensitivity of 85 % for a (against single readers" in html


COMMON = {"sensitivity": 0.85, "specificity": 0.8}
GOALS = dict.fromkeys(CONCEPTS_FINDINGS, COMMON)


def test_model_and_data_are_judged_apart(found):
    said = findings.recognised(found)
    assert list(said.values()) == [["common", "twin"], ["rare"], [], ["absent"]]
    # Three wrong answers about `rare` may be bad luck where seven rates are looked at.
    assert found.examination["rare"].counts["fn"] == 3
    assert findings.missed_goals(found) == []
    [(needed, few)] = findings.scarce_samples(found)
    assert [rate.concept for rate in few] == list(CONCEPTS_FINDINGS)  # 41 positives are not the 46 that it takes
    assert [rate.of for rate in few][2:] == [3, 0]
    assert (needed, few[0].kind) == (46, "with")
    assert findings.entangled(found) == [(["common", "twin"], 1)]


def test_a_missed_goal_follows_from_the_simultaneous_interval(bank):
    always = ExaminationReport(examine(bank, lambda sample, concept: 0.1), GOALS)
    missed = {(rate.concept, rate.measure): (rate, only) for rate, only in findings.missed_goals(always)}
    assert set(missed) == {("common", "sensitivity"), ("twin", "sensitivity")}
    rate, only = missed["common", "sensitivity"]
    assert (rate.right, only) == (0, "no")
    assert rate.simultaneous[1] < 0.85
    assert [rate.concept for rate in always.judged if rate.standing == "met"] == list(CONCEPTS_FINDINGS)
    content = always.to_dict()
    assert [(one["concept"], one["finding"]) for one in content["findings"]][:2] == [
        ("common", "missed"), ("common", "met"),
    ]  # fmt: skip
    assert (content["goals"], content["bank"]["together"]) == (GOALS, [])


def test_without_a_goal_nothing_is_judged(bank):
    everything = ExaminationReport(examine(bank, examinee(bank)))
    assert findings.missed_goals(everything) == everything.judged == findings.scarce_samples(everything) == []
    assert {rate.standing for pair in everything.rates for rate in pair} == {"no goal"}
    only = replace(everything, goals={name: {"specificity": 0.8} for name in CONCEPTS_FINDINGS})
    assert {rate.measure for rate, _ in findings.missed_goals(only)} <= {"specificity"}
    assert {few[0].measure for _, few in findings.scarce_samples(only)} <= {"specificity"}


def test_groups_of_concepts_are_joined():
    pairs = [ConceptPair(("a", "b"), 9, 2), ConceptPair(("c", "d"), 9, 0), ConceptPair(("b", "c"), 9, 1)]
    bank = Bank(None, list("abcde"), np.zeros((1, 5), np.int8))
    assert findings.entangled(ExaminationReport(examine(bank, lambda *_: 0.5), together=pairs)) == [(list("abcd"), 2)]


def test_what_was_not_asked_is_said(bank):
    asked = ExaminationReport(examine(bank, examinee(bank), questions=1, strategy="random"), GOALS)
    leads = [rate.concept for rate in findings.left_open(asked)]
    # Only cells that can still settle something: with 3 and 0 positives two of them cannot.
    assert leads.count("common") == 1  # 44 positives cannot show a sensitivity of 85 % among 7 rates, 76 negatives can
    assert leads.count("rare") == 1
    # A kind that was asked completely is not open, even where its interval for new samples reaches over the goal.
    wrong = np.flatnonzero(bank.truth[:, 0] == 1)[: round(0.15 * 44)]
    knows = examinee(bank)
    mostly = examine(
        bank, lambda k, name: 0.9 * bank.truth[k, 0] * (k not in wrong) if name == "common" else knows(k, name)
    )
    everything = ExaminationReport(mostly, GOALS)
    assert everything.rates[0][0].standing == "open"
    assert findings.left_open(everything) == []
