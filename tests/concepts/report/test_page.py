import re

import numpy as np
import pytest

from retinabench.cli.main import run
from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.report import figures, paper
from retinabench.concepts.report.findings import ExaminationReport, together
from retinabench.concepts.report.page import CONTENTS, render, write_report
from support.browsers import check_page
from support.concept_banks import examinee
from support.reading_pages import Reader, without_script

EVIL = "<script>alert('x')</script>\"&$\\frac{"


@pytest.fixture(scope="module")
def html(found):
    return render(found)


def page_of(bank, **options):
    return render(ExaminationReport(examine(bank, examinee(bank), **options)))


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


def test_the_same_arguments_give_the_same_bytes_and_they_fit_a_phone(html, found, tmp_path, browser):
    written = write_report(found, tmp_path)
    assert written == tmp_path / "index.html"
    assert written.read_bytes() == html.encode()
    check_page(browser, written)


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


def test_the_verdict_says_what_the_findings_are(html):
    """`test_findings.py` has what is found."""
    for text in (
        "The model recognises common and twin.",
        "nothing better than guessing is shown for rare.",
        "Nothing can be said about absent: no sample with it, or none without",
        "<b>No failure is shown</b>",
    ):
        assert text in html


@pytest.mark.usefixtures("legible")
def test_the_performance_panel_shows_every_count_and_the_band(found):
    one = found.examination["common"]
    bins, mean, sd = one.bins, one.gp.mean, one.gp.sd
    axes = figures.performance_panel(one).axes[0]
    dots = axes.lines[-1]
    seen = np.flatnonzero(bins)
    assert np.allclose(dots.get_xdata(), (seen + 0.5) / 100)
    assert dots.get_ydata().tolist() == bins[seen].tolist()
    assert [text.get_text() for text in axes.texts] == ["TN", "FP", "FN", "TP"]
    assert axes.get_ylim()[1] > max(bins.max(), (mean + 2 * sd).max())
    assert (mean - 2 * sd).min() < 0  # which no number of answers is
    assert min(axes.collections[0].get_paths()[0].vertices[:, 1]) == 0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(paper, "REPETITIONS", 2)
    monkeypatch.setattr(paper, "QUESTIONS", 20)


def figures_of(page):
    return re.findall(r'<title id="[^"]*">([^<]*)</title>', page.read_text())


@pytest.mark.usefixtures("legible", "quick")
def test_the_three_examinees_stand_side_by_side_in_all_figures(tmp_path, capsys, browser, monkeypatch):
    monkeypatch.setattr(paper, "STRATEGIES", paper.STRATEGIES[::3])
    source = ["--bank", "synthetic", "--images", "60"]
    assert run(["examine", *source, "--examinee", "paper", "--questions", "30", "--out", str(tmp_path), "-q"]) == 0
    titles = figures_of(tmp_path / "index.html")
    rows = [f"{name}, {kind} concept" for kind in ("commonest", "rarest") for name in paper.EXAMINEES]
    assert titles == [*(rows * 3), *paper.EXAMINEES]  # all asked, two strategies, the fall of the uncertainty
    assert capsys.readouterr().out == f"{tmp_path / 'index.html'}\n"
    check_page(browser, tmp_path / "index.html")


@pytest.mark.usefixtures("undrawn", "quick")
def test_a_table_of_truth_has_them_too_and_nothing_is_judged(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"i{k},{k % 2},{int(k % 7 == 0)}" for k in range(30)]
    (tmp_path / "truth.csv").write_text("\n".join(["image_id,edema,mass", *rows]) + "\n")
    command = ["examine", "--truth", "truth.csv", "--examinee", "paper", "--out", "out", "-q"]
    assert run([*command, "--claim", "sensitivity of mass >= 0.8"]) == 2
    assert "judges nothing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(command) == 0
    assert len(figures_of(tmp_path / "out" / "index.html")) == 33
