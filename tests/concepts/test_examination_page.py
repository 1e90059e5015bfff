"""The page of an examination: complete, true to its numbers, escaped, needing nothing but itself."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.strategy_comparison import compare_strategies
from retinabench.concepts.report import texts, words
from retinabench.concepts.report.overlap import together
from retinabench.concepts.report.page import render, write_report
from retinabench.concepts.report.rates import (
    Rate,
    jeffreys,
    needed,
    ranking,
    ranks_rightly,
    rates,
    recognition,
)
from retinabench.concepts.report.snapshot import snapshot
from support.reading_pages import Reader

CONCEPTS = ("common", "twin", "rare", "absent")
EVIL = "<script>alert('x')</script>\"&$\\frac{"


@pytest.fixture(scope="module")
def bank():
    """120 samples: a common concept, its twin (one sample apart), one with 3 positives, one with none."""
    random = np.random.default_rng(0)
    truth = np.zeros((120, 4), np.int8)
    truth[:, 0] = random.random(120) < 0.4
    truth[:, 1] = truth[:, 0]
    truth[0, 1] = 1 - truth[0, 0]
    truth[[3, 50, 90], 2] = 1
    return Bank([f"s{k}" for k in range(120)], CONCEPTS, truth)


def examinee(bank):
    """Knows `common` and its twin in 95 %, ranks `rare` without ever saying yes, guesses `absent`."""
    random = np.random.default_rng(1)
    said = np.where(random.random((120, 4)) < 0.95, bank.truth, 1 - bank.truth) * 0.8 + 0.1
    said[:, 2] = 0.1 + 0.3 * bank.truth[:, 2] + 0.05 * random.random(120)
    said[:, 3] = random.random(120)
    return lambda sample, concept: float(said[sample, bank.concepts.index(concept)])


@pytest.fixture(scope="module")
def found(bank):
    claims = ["sensitivity of common >= 0.5", "specificity of twin <= 0.5", "sensitivity of rare >= 0.9"]
    result = examine(bank, examinee(bank), strategy="precision", questions=200, claim=claims).to_dict()
    return result | {"bank": {**result["bank"], "together": together(bank)}}


@pytest.fixture(scope="module")
def comparison(bank):
    who = examinee(bank)
    one = compare_strategies(
        bank, lambda _: who, ("random", "uncertainty", "precision"), 3, questions=60
    ).to_dict()
    return one | {"state": snapshot(bank, who, ("random", "uncertainty"))}


@pytest.fixture(scope="module")
def html(found, comparison):
    return render(found, comparison)


def test_every_concept_has_its_rows_and_its_figure(html):
    for concept in CONCEPTS:
        assert html.count(f'<th scope="row">{concept}</th>') == 2
        assert f"Answers about {concept}" in html


def test_the_page_needs_nothing_but_itself_and_is_well_formed(html):
    reader = Reader(html)
    assert reader.open == []
    assert "http" not in html
    assert "<script" not in html
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {a or b for a, b in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", html)}
    assert wanted <= set(ids)
    assert {anchor for anchor, _ in texts.CONTENTS} <= set(ids)
    figures = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 1 + 4 + 1 + 2 * 2  # rates, concepts, progress, two concepts by two strategies
    assert all("scope" in a for tag, a in reader.elements if tag == "th")


def test_hostile_names_stay_text(tmp_path, bank):
    names = [f"{EVIL}{k}" for k in range(4)]
    hostile = Bank([f"s{k}" for k in range(120)], names, bank.truth)
    who = examinee(hostile)
    found = examine(hostile, who, claim=[f"sensitivity of {names[0]} >= 0.5"]).to_dict()
    found["bank"]["together"] = together(hostile)
    compared = compare_strategies(hostile, lambda _: who, ("random", "precision"), 2, questions=30).to_dict()
    compared |= {"state": snapshot(hostile, who, ("random",))}
    page = write_report(found, compared, tmp_path)
    text = page.read_text()
    assert "<script" not in text
    assert "alert(" in text
    assert Reader(text).open == []


def test_names_of_any_script_are_shown(bank):
    names = ["出血", "emorragia à fiamma", "a\x07b", "x" * 200]
    foreign = Bank(None, names, bank.truth)
    html = render(examine(foreign, examinee(foreign), questions=40).to_dict())
    drawing = html[html.index("rates-title") : html.index("</figure>")]
    assert ">出血<" in drawing.replace("\n", "")
    assert "a\\x07b" in drawing
    assert "x" * 18 not in drawing[drawing.index("</desc>") :]
    assert Reader(html).open == []


def test_the_same_arguments_give_the_same_bytes(found, comparison, tmp_path):
    first, second = (write_report(found, comparison, tmp_path / name) for name in "ab")
    assert first == tmp_path / "a" / "index.html"
    assert first.read_bytes() == second.read_bytes()


def test_numbers_that_went_through_json_give_the_same_page(found, comparison, html):
    assert render(json.loads(json.dumps(found)), json.loads(json.dumps(comparison))) == html


def test_the_verdict_keeps_model_and_data_apart(found):
    assert "recognises common and twin." in words.answer(found)
    assert "nothing better than guessing is shown for rare." in words.answer(found)
    assert "Nothing can be said about absent: no sample with it, or none without" in words.answer(found)
    model = {str(f.lead): str(f.text) for f in words.model_findings(found)}
    assert "rare:" in model
    # The third claim was decided, and the questions ended, before all three positives had been asked.
    asked = found["concepts"]["rare"]["sensitivity"]["asked"]
    assert 0 < asked < 3
    assert f"asked about {asked} of 3 samples with it, the model was right about 0" in model["rare:"]
    assert "answered no to every question" in model["rare:"]
    assert "another cut" not in model["rare:"]  # two samples above a few others may be chance
    data = {str(f.lead): str(f.text) for f in words.data_findings(found)}
    assert "rare (3 of 120) and absent (0 of 120)" in data["Too few samples with"]
    assert "common and twin; pairs of them differ in at most 1 in the 120" in data["Mostly together:"]
    assert "Too few samples without" not in data


def test_one_goal_met_is_neither_failure_nor_adequacy():
    counts = {"tp": 40, "fn": 0, "tn": 8, "fp": 1}
    bank = {"samples": 49, "positives": {"x": 40}, "negatives": {"x": 9}}
    found = {"bank": bank, "concepts": {"x": {"counts": counts}}}
    assert [rate.standing for rate in rates(found)[0]] == ["met", "open"]
    [only] = words.model_findings(found)
    assert "No failure is shown:" in only.lead
    assert "sensitivity of at least 85 % and a specificity of at least 80 % both shown" in only.text


def test_another_cut_is_advised_where_the_ranking_is_no_chance(bank):
    everything = examine(bank, examinee(bank)).to_dict()
    model = {str(f.lead): str(f.text) for f in words.model_findings(everything)}
    assert "asked about all 3 samples with it, the model was right about 0" in model["rare:"]
    assert "AUROC 1.00): another cut of P(yes) than one half would serve better" in model["rare:"]


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
def test_ranking_rightly_is_mann_and_whitneys_test(without, having, rightly):
    bins = np.bincount([*without, *(50 + place for place in having)], minlength=100)
    assert ranks_rightly({"bins": bins.tolist()}) is rightly


def test_claims_are_put_into_words(found, html):
    verdicts = [str(words.claim_verdict(claim)) for claim in found["claims"]]
    assert verdicts[0].startswith("Holds, decided at question ")
    assert verdicts[1].startswith("Does not hold, decided at question ")
    decided = {claim["decided"] for claim in found["claims"]}
    assert {"holds", "fails"} <= decided
    for text in verdicts:
        assert text in html


def test_the_page_says_where_answers_decided_when_to_stop(bank):
    who = examinee(bank)
    for options in ({"claim": "sensitivity of common >= 0.5"}, {"patience": 5}, {"tolerance": 1.9}):
        found = examine(bank, who, strategy="precision", **options).to_dict()
        assert "The answers decided when to stop" in texts.caution(found)
        assert any(note.startswith("The answers decided when to stop") for note in found["notes"])
    found = examine(bank, who, strategy="precision", questions=20).to_dict()
    assert "The answers decided when to stop" not in texts.caution(found)


def test_a_biasing_strategy_is_called_so(bank):
    found = examine(bank, examinee(bank), strategy="unpredictability", questions=20).to_dict()
    assert "hold for neither the bank nor new samples" in render(found)
    found = examine(bank, examinee(bank), strategy="random", questions=20).to_dict()
    assert "hold for neither" not in render(found)


def test_one_question_is_a_page_without_the_other_sections(bank):
    html = render(examine(bank, examinee(bank), questions=1, strategy="random").to_dict())
    assert Reader(html).open == []
    for anchor in ("claims", "strategies", "state"):
        assert f'id="{anchor}"' not in html
        assert f'href="#{anchor}"' not in html
    assert "no such sample was asked" in html


def test_what_was_not_asked_is_said(bank):
    asked = examine(bank, examinee(bank), questions=1, strategy="random").to_dict()
    leads = [str(f.lead) for f in words.open_findings(asked)]
    # Only cells that can still settle something: with 3 and 0 positives two of them cannot.
    assert leads.count("common:") == 2
    assert leads.count("rare:") == 1
    everything = examine(bank, examinee(bank)).to_dict()
    # A kind that was asked completely is not open, even where its interval for new samples reaches over the goal.
    counts = everything["concepts"]["common"]["counts"]
    positives = counts["tp"] + counts["fn"]
    counts |= {"tp": round(0.85 * positives), "fn": positives - round(0.85 * positives)}
    assert rates(everything)[0][0].standing == "open"
    rest = everything | {"asked": everything["asked"] - 1}
    assert [str(f.lead) for f in words.open_findings(rest)] == ["Enough was asked:"]
    assert [str(f.lead) for f in words.open_findings(everything)] == ["Everything was asked:"]


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
    pair = [Rate("x", m, k, 100, 100) for m, k in zip(("sensitivity", "specificity"), right, strict=True)]
    assert recognition(*pair) == verdict


def test_guessing_is_seldom_called_recognition():
    # 20 positives and 40 negatives answered by a coin of any bias: both intervals must err for a false "recognised".
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        p = random.random()
        pair = (
            Rate("x", "sensitivity", random.binomial(20, p), 20, 20),
            Rate("x", "specificity", random.binomial(40, 1 - p), 40, 40),
        )
        wrong += recognition(*pair) == "recognised"
    assert wrong <= 12  # 3 %; the two-sided bound is 5 %


def test_the_ranking_is_the_auroc_of_the_binned_answers(bank):
    from sklearn.metrics import roc_auc_score

    who = examinee(bank)
    found = examine(bank, who).to_dict()
    for place, concept in enumerate(CONCEPTS[:3]):
        said = [min(int(50 * who(sample, concept)), 49) for sample in range(120)]
        expected = roc_auc_score(bank.truth[:, place], said)
        assert ranking(found["concepts"][concept]).auroc == pytest.approx(expected, abs=1e-12)
    assert ranking(found["concepts"]["absent"]) is None


def test_rates_are_those_of_the_counts(found):
    for sensitivity, specificity in rates(found):
        counts = found["concepts"][sensitivity.concept]["counts"]
        assert (sensitivity.right, specificity.right) == (counts["tp"], counts["tn"])
        assert sensitivity.asked == counts["tp"] + counts["fn"]
        assert specificity.of == found["bank"]["negatives"][sensitivity.concept]


def test_concepts_come_together_where_jaccard_says_so():
    truth = np.array([[1, 1, 0], [1, 1, 1], [1, 1, -1], [1, 0, 0], [1, 1, 0], [0, 0, 1]], np.int8)
    assert together(Bank(None, ["a", "b", "c"], truth)) == [{"concepts": ["a", "b"], "both": 4, "one": 1}]


def test_the_snapshot_shows_the_commonest_and_the_rarest_that_occurs(bank):
    state = snapshot(bank, examinee(bank), ("random", "precision"), seed=1)
    assert state["questions"] == 100
    assert state["concepts"] == [
        max(("common", "twin"), key=lambda c: bank.truth[:, CONCEPTS.index(c)].sum()),
        "rare",
    ]
    for bins in state["bins"].values():
        assert 0 < sum(map(sum, bins.values())) <= 100
    small = Bank(None, ["a", "b"], np.eye(6, 2, dtype=np.int8))
    assert snapshot(small, lambda sample, concept: 0.5, ("random",))["questions"] == 4
    alone = Bank(None, ["a"], np.eye(6, 1, dtype=np.int8))
    assert snapshot(alone, lambda sample, concept: 0.5, ("random",)) is None
