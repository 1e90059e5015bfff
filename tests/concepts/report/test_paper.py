"""The figures of the paper, as a user draws them for a bank."""

from __future__ import annotations

import re

import pytest

from retinabench.cli.main import run
from retinabench.concepts.report import paper
from support.browsers import check_page

pytestmark = pytest.mark.usefixtures("legible")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(paper, "REPETITIONS", 2)
    monkeypatch.setattr(paper, "QUESTIONS", 20)


def figures_of(page):
    return re.findall(r'<title id="[^"]*">([^<]*)</title>', page.read_text())


def test_the_three_examinees_stand_side_by_side_in_all_figures(tmp_path, capsys, browser):
    source = ["--bank", "synthetic", "--images", "60"]
    assert run(["examine", *source, "--examinee", "paper", "--questions", "30", "--out", str(tmp_path), "-q"]) == 0
    titles = figures_of(tmp_path / "index.html")
    rows = [f"{name}, {kind} concept" for kind in ("commonest", "rarest") for name in paper.EXAMINEES]
    assert titles == [*(rows * 5), *paper.EXAMINEES]  # all asked, four strategies, the fall of the uncertainty
    assert capsys.readouterr().out == f"{tmp_path / 'index.html'}\n"
    check_page(browser, tmp_path / "index.html")


@pytest.mark.usefixtures("undrawn")
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
