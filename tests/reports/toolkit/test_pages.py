"""The sliders' data: texts and thumbnails of the outcomes, whatever the file holds."""

import json
from pathlib import Path

import pytest

import retinabench as rb
from retinabench import __version__
from retinabench.metrics.policies import policy_grid
from retinabench.reports.clinic import render
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.number_format import Place, Quantity
from retinabench.reports.toolkit.pages import ROWS, cells, explorer
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from support.reading_pages import without_script
from support.screened import screened

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def screening():
    part = screened(60, camera_drop=2.0)
    changed = rb.Predictions(
        [f"{HOSTILE}{k}" for k in range(len(part))], part.label, part.prob, grade=part.grade,
        domain=part.domain, split=part.split, subgroups={"camera": part.subgroups["camera"]},
    )  # fmt: skip
    report = rb.clinic(changed, 0.35, referral_rate=0.2)
    return report, policy_grid(changed, report.stated)


def test_nothing_in_the_file_ends_the_script(screening):
    report, grid = screening
    page = render(report, grid)
    assert "<script" not in without_script(page)
    assert "alert(1)</script" not in page
    assert '<section id="explore" class="explore" aria-labelledby="explore-heading" hidden>' in page
    assert 'id="policies"' not in render(report)


def test_every_text_is_that_of_its_outcome(screening):
    _, grid = screening
    data = json.loads(explorer({"one": grid, "two": grid}, (0.9, 0.95))["data"])
    assert [model["name"] for model in data["models"]] == ["one", "two"]
    assert len(set(data["texts"])) == len(data["texts"])
    for found in data["models"][1]["sets"]:
        groups = grid.outcomes[found["key"]]
        for shown, rows in zip(found["groups"], groups.values(), strict=True):
            for places, missed, row in zip(shown["cells"], shown["missed"], rows, strict=True):
                assert [[data["texts"][k] for k in texts] for texts in places] == [cells(one) for one in row]
                assert missed == [one.missed_images for one in row]
    assert data["models"][0]["sets"][0]["images"][0][0].startswith(HOSTILE)
    outcome = grid.outcomes["in_domain"][""][2][5]
    sensitivity = dict(zip(ROWS, cells(outcome), strict=True))["Sensitivity"]
    assert sensitivity.startswith(f"{100 * outcome.sensitivity.value:.0f}")


def test_thumbnails_are_those_that_most_pairs_show(screening, monkeypatch):
    _, grid = screening
    monkeypatch.setattr(pages, "MOST_THUMBNAILS", 3)
    known = {one.image_id for one in grid.images["in_domain"][1:]}
    data = json.loads(explorer({"": grid}, (1, 1), lambda name: "data:," if name in known else "")["data"])
    assert len(data["thumbnails"]) == 3
    assert set(data["thumbnails"]) <= known
    assert json.loads(explorer({"": grid}, (1, 1), lambda name: "")["data"])["thumbnails"] == {}
    monkeypatch.setattr(pages, "MOST_THUMBNAIL_BYTES", 25)
    assert len(json.loads(explorer({"": grid}, (1, 1), lambda name: "x" * 10)["data"])["thumbnails"]) == 2


EVIL = "<script>alert('x')</script> | *a*"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of its own with two templates."""
    folder = tmp_path / "some_report" / "templates"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "page.html.j2").write_text(
        '{% extends "base.html.j2" %}{% block main %}{{ parts.finding(one) }}{{ sheet | table }}{{ number | whole }}{% endblock %}'
    )
    (folder / "card.md.j2").write_text("{{ name | md }} and {{ name }}: {{ sheet | markdown_table(caption=false) }}")
    monkeypatch.syspath_prepend(tmp_path)
    return "some_report"


def context() -> dict[str, object]:
    return {
        "title": EVIL,
        "name": EVIL,
        "one": pages.Finding("Lead.", EVIL, "bad"),
        "sheet": Table.of("Caption", [Column("AUROC")], [Row(EVIL, [Cell.number(0.5)])]),
        "number": Quantity(0.25, 0.125, 0.5, place=Place(EVIL, "joint", "nll")),
    }


def test_a_page_extends_the_base_and_escapes_everything(package: str):
    html = pages.render("page.html.j2", context(), package=package)
    assert html.startswith("<!doctype html>")
    assert "<script" not in without_script(html)
    assert html.count("&lt;script&gt;") == 7  # title twice, finding, row, three parts of the number
    assert '<p class="finding bad"><b>Lead.</b> ' in html
    assert 'data-value="0.25">0.25</span> <span class="whole">[' in html
    assert f"retinabench {__version__}" in html
    assert "--paper: #fffffe" in html


def test_a_text_template_escapes_what_is_marked(package: str):
    text = pages.render("card.md.j2", context(), package=package)
    assert text.startswith(r"&lt;script&gt;alert('x')&lt;/script&gt; \| \*a\* and <script>")
    assert "Caption" not in text
    assert "| 0.500 |" in text


def test_a_percent_sign_stays_with_its_number_and_names_are_quoted(package: str):
    html = pages.render("page.html.j2", context() | {"title": "35 % of never"}, package=package)
    assert "<h1>35\N{NO-BREAK SPACE}% of never</h1>" in html
    assert pages.quoted("<b>never") == "“&lt;b&gt;never”"
