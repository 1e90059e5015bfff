"""The page of an examination: complete, true to its numbers, escaped, needing nothing but itself."""

from __future__ import annotations

import json
import re

import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.strategy_comparison import compare_strategies
from retinabench.concepts.report.overlap import together
from retinabench.concepts.report.page import CONTENTS, render, write_report
from retinabench.concepts.report.snapshot import snapshot
from support.examinees import CONCEPTS, examinee
from support.reading_pages import Reader

EVIL = "<script>alert('x')</script>\"&$\\frac{"


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
    assert {anchor for anchor, _ in CONTENTS} <= set(ids)
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


def test_the_page_says_where_answers_decided_when_to_stop(bank):
    who = examinee(bank)
    for options in ({"claim": "sensitivity of common >= 0.5"}, {"patience": 5}, {"tolerance": 1.9}):
        found = examine(bank, who, strategy="precision", **options).to_dict()
        assert "The answers decided when to stop" in render(found)
        assert any(note.startswith("The answers decided when to stop") for note in found["notes"])
    found = examine(bank, who, strategy="precision", questions=20).to_dict()
    assert "The answers decided when to stop" not in render(found)


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


def test_sentences_of_the_verdict(html, bank, found):
    assert "The model recognises common and twin." in html
    assert "nothing better than guessing is shown for rare." in html
    assert "Nothing can be said about absent: no sample with it, or none without" in html
    asked = found["concepts"]["rare"]["sensitivity"]["asked"]
    assert f"asked about {asked} of 3 samples with it, the model was right about 0" in html
    assert "It answered no to every question" in html
    assert "one half is not the threshold for it" not in html
    assert "rare (3 of 120) and absent (0 of 120)" in html
    assert "common and twin; pairs of them differ in at most 1 in the 120" in html
    assert "Too few samples without" not in html
    everything = render(examine(bank, examinee(bank)).to_dict())
    assert "(AUROC 1.000), but one half is not the threshold for it" in everything
    assert "Nothing is judged:" in everything
    assert "85 %" not in everything.partition("<h3>The data set")[0].partition("<h3>The model")[2]
    assert "Everything was asked:" in everything
    goals = {"sensitivity": 0.9}
    assert "asked about all 3 samples with it" in render(
        examine(bank, examinee(bank)).to_dict() | {"goals": goals}
    )


def test_claims_are_put_into_sentences(found, html):
    assert [claim["decided"] for claim in found["claims"]][:2] == ["holds", "fails"]
    assert "Holds, decided at question " in html
    assert "Does not hold, decided at question " in html


def test_no_failure_and_nothing_left_to_settle(bank):
    everything = examine(bank, examinee(bank)).to_dict()
    counts = everything["concepts"]["common"]["counts"]
    positives = counts["tp"] + counts["fn"]
    counts |= {"tp": round(0.85 * positives), "fn": positives - round(0.85 * positives)}
    assert "Enough was asked:" in render(everything | {"asked": everything["asked"] - 1})
