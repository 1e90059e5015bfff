"""The page of an examination: complete, true to its numbers, escaped, needing nothing but itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.report.findings import ExaminationReport, together
from retinabench.concepts.report.page import CONTENTS, render, write_report
from support.browsers import check_page
from support.examinees import CONCEPTS, examinee
from support.reading_pages import Reader, without_script

EVIL = "<script>alert('x')</script>\"&$\\frac{"


@pytest.fixture(scope="module")
def html(found):
    return render(found)


def page_of(bank, **options):
    """The page of an examination without goals."""
    return render(ExaminationReport(examine(bank, examinee(bank), **options)))


def test_every_concept_has_its_rows_and_its_figure(html):
    for concept in CONCEPTS:
        assert html.count(f'<th scope="row">{concept}</th>') == 2
        assert f"Answers about {concept}" in html


def test_the_page_needs_nothing_but_itself_and_is_well_formed(html):
    reader = Reader(html)
    assert reader.open == []
    assert "//" not in re.sub(r"<style>.*?</style>", "", without_script(html), flags=re.DOTALL)
    assert "<script" not in without_script(html)
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {a or b for a, b in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", html)}
    assert wanted <= set(ids)
    assert {anchor for anchor, _ in CONTENTS} - {"readers", "referral"} <= set(ids)
    figures = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 1 + 4  # rates and concepts
    assert all("scope" in a for tag, a in reader.elements if tag == "th")


def test_the_page_fits_a_phone_and_is_accessible(html, browser, tmp_path):
    (tmp_path / "page.html").write_text(html)
    check_page(browser, tmp_path / "page.html")


def test_hostile_names_stay_text(tmp_path, bank):
    names = [f"{EVIL}{k}" for k in range(4)]
    hostile = Bank([f"s{k}" for k in range(120)], names, bank.truth)
    who = examinee(hostile)
    found = examine(hostile, who, claim=[f"sensitivity of {names[0]} >= 0.5"])
    report = ExaminationReport(found, together=together(hostile))
    page = write_report(report, tmp_path)
    text = page.read_text()
    assert "<script" not in without_script(text)
    assert "alert(" in text
    assert Reader(text).open == []


def test_names_of_any_script_are_shown(bank):
    names = ["出血", "emorragia à fiamma", "a\x07b", "x" * 200]
    foreign = Bank(None, names, bank.truth)
    html = page_of(foreign, questions=40)
    drawing = html[html.index("rates-title") : html.index("</figure>")]
    assert ">出血<" in drawing.replace("\n", "")
    assert "a\\x07b" in drawing
    assert "x" * 18 not in drawing[drawing.index("</desc>") :]
    assert Reader(html).open == []


def test_the_same_arguments_give_the_same_bytes(found, tmp_path):
    first, second = (write_report(found, tmp_path / name) for name in "ab")
    assert first == tmp_path / "a" / "index.html"
    assert first.read_bytes() == second.read_bytes()


def test_the_ranking_has_an_interval_whenever_one_stops(bank):
    found = ExaminationReport(examine(bank, examinee(bank), strategy="uncertainty", questions=200))
    one, cell = found.examination["common"].auroc, cells_of(render(found), "common")[-1]
    assert f"{one.value:.2f}" in cell
    assert f"[ {one.low:.2f} ,  {one.high:.2f} ]" in cell


def test_patients_with_several_samples_are_spoken_of(bank):
    eyes = Bank(None, bank.concepts, bank.truth, patient=np.arange(120) // 2)
    goals = {"rare": {"sensitivity": 0.9}, "common": {"sensitivity": 0.9}}
    html = render(ExaminationReport(examine(eyes, examinee(bank)), goals))
    assert "one sample of each counts" in html
    assert "of as many patients" in html
    assert "Patients have several samples" in " ".join(html.split())
    assert "is taken for a patient of its own" in page_of(bank, questions=9)


def cells_of(html, concept):
    """The cells of a concept in the table of rates."""
    row = html[html.index(f'<th scope="row">{concept}</th>') :].partition("</tr>")[0]
    return [re.sub(r"<[^>]+>", " ", cell) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]


def test_a_biasing_strategy_is_called_so(bank):
    biasing = page_of(bank, strategy="unpredictability", questions=20)
    assert "nothing is concluded about new samples" in biasing
    assert "nothing is concluded" not in page_of(bank, strategy="random", questions=20)


def test_a_claim_of_a_later_day_prints_no_decision(bank, tmp_path):
    who, path = examinee(bank), tmp_path / "transcript.jsonl"
    examine(bank, who, claim="sensitivity of common >= 0.5", transcript=path)
    later = ["sensitivity of common >= 0.5", "specificity of common >= 0.1"]
    html = page_of(bank, claim=later, transcript=path)
    assert html.count("<b>Holds in this bank:</b>") == 1
    assert "specificity of common &gt;= 0.1. It was stated when answers were known; 0 of" in html
    assert "the claim was written down before the first question" in html


def test_one_question_is_a_page_without_the_other_sections(bank):
    html = page_of(bank, questions=1, strategy="random")
    assert Reader(html).open == []
    for anchor in ("readers", "referral", "state"):
        assert f'id="{anchor}"' not in html
        assert f'href="#{anchor}"' not in html
    assert "no such sample was asked" in html
    assert html.count("Answers about ") == 1  # the others have no figure
    assert "No question was asked about" in html


def test_sentences_of_the_verdict(html, bank, found):
    assert "The model recognises common and twin." in html
    assert "nothing better than guessing is shown for rare." in html
    assert "Nothing can be said about absent: no sample with it, or none without" in html
    assert "<b>No failure is shown</b>" in html
    assert "none of the statements above about recognised concepts and goals is wrong" in html
    assert "intervals that hold for all 7 rates at once" in html
    assert "It answered no to every question" not in html
    assert "rare (3 of 120) and absent (0 of 120)" in html
    assert "common and twin; pairs of them differ in at most 1 in the 120" in html
    assert "Too few samples without" not in html
    everything = page_of(bank)
    assert "(AUROC 1.000), but one half is not the threshold for it" in everything
    assert "Nothing is judged:" in everything
    assert "85 %" not in everything.partition("<h3>The data set")[0].partition("<h3>The model")[2]
    assert "Everything was asked:" in everything
    never = examine(bank, lambda sample, concept: 0.2)
    silent = render(ExaminationReport(never, {"common": {"sensitivity": 0.9}}))
    assert "the model was right about 0: sensitivity " in silent
    assert "It answered no to every question" in silent


def test_claims_are_put_into_sentences(found, html):
    assert "the 4 claims were written down before the first question" in html
    assert [claim.decided for claim in found.examination.claims][:2] == ["holds", "fails"]
    assert re.search("<b>Undecided in this bank:</b> .*Of 40 answers about it, ", html)
    assert re.search(r"<b>Holds in this bank:</b> .*, decided after \d+ questions?\.", html)
    assert re.search(r"<b>Does not hold in this bank:</b> .*, decided after \d+ questions?\.", html)


def test_no_failure_and_nothing_left_to_settle():
    """One question less than all, and the samples with the concept, which are too few for any goal, were all asked."""
    bank = Bank(None, ["x"], (np.arange(40) < 5).astype(np.int8)[:, None])
    goals = {"x": {"sensitivity": 0.9}}
    questions = next(n for n in range(39, 0, -1) if _all_positives(bank, n))
    html = render(ExaminationReport(examine(bank, _right(bank), strategy="random", questions=questions), goals))
    assert "<b>No failure is shown</b>" in html
    assert "Enough was asked:" in html


def _right(bank):
    return lambda sample, concept: 0.9 * bank.truth[sample, 0]


def _all_positives(bank, questions):
    found = examine(bank, _right(bank), strategy="random", questions=questions)
    return found["x"].counts["tp"] == bank.cells[0, 1]
