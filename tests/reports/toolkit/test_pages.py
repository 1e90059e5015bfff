"""The page builder: everything is escaped, nothing may be missing, and text templates stay text."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from retinabench import __version__
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.number_format import Place, Quantity
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from support.reading_pages import without_script

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
    (folder / "card.md.j2").write_text(
        "{{ name | md }} and {{ name }}: {{ sheet | markdown_table(caption=false) }}"
    )
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


def test_a_missing_name_is_an_error(package: str):
    known = context()
    del known["number"]
    with pytest.raises(jinja2.UndefinedError, match="number"):
        pages.render("page.html.j2", known, package=package)


def test_counts_and_capitals():
    assert pages.counted(1, "image") == "1 image"
    assert pages.counted(1200, "image") == "1,200 images"
    assert pages.counted(2, "study", "studies") == "2 studies"
    assert pages.capitalise("on MAP") == "On MAP"


def test_a_percent_sign_stays_with_its_number_and_names_are_quoted(package: str):
    html = pages.render("page.html.j2", context() | {"title": "35 % of never"}, package=package)
    assert "<h1>35\N{NO-BREAK SPACE}% of never</h1>" in html
    assert pages.quoted("<b>never") == "“&lt;b&gt;never”"
