"""The tables of a data card."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retinabench.data.prepared.folder import open_prepared
from retinabench.inspection.alignment import Alignment
from retinabench.inspection.duplicates import LEAST, CopyPair
from retinabench.inspection.inspection import inspect_data
from retinabench.inspection.outliers import Outlier
from retinabench.inspection.page import MOST_ROWS, evidence, markdown, page, tables
from support.browsers import check_phone, faults
from support.helpers import make_prepared


def test_long_tables_are_cut_and_say_so(tmp_path):
    found = inspect_data(open_prepared(make_prepared(tmp_path / "data")), read_images=False)
    outliers = [Outlier(0, "brightness", -4.0 - k, "dark") for k in range(MOST_ROWS + 3)]
    table = {one.caption: one for one in tables(replace(found, outliers=outliers))}["Outliers"]
    [block] = table.blocks
    assert len(block.rows) == MOST_ROWS
    assert table.note.startswith("The first 20 of 23; all are in inspection.json.")


@pytest.mark.parametrize(
    ("alignment", "said"),
    [
        (None, ""),
        (Alignment(0.9, 0.8, False, 0.4, 1.0), ""),
        (Alignment(0.9, 0.8, False, -179.7, 1.0), ", turned by 180°"),
        (Alignment(0.9, 0.8, True, -90.2, 0.94), ", mirrored, turned by −90°, scaled by 0.94"),
    ],
)
def test_the_evidence_says_how_the_second_image_lies_on_the_first(alignment, said):
    assert evidence(CopyPair((0, 1), LEAST, alignment)) == LEAST + said


def test_page_and_markdown_have_the_same_findings_and_tables(tmp_path):
    found = inspect_data(open_prepared(make_prepared(tmp_path / "data")), read_images=False)
    html, card = page(found, []), markdown(found, [])
    for one in tables(found):
        assert f"<caption><span>{one.caption}</span></caption>" in html
        assert f"## {one.caption}" in card
    assert html.count('<p class="finding') == card.partition("\n## Splits")[0].count("\n- **")


def test_the_page_fits_a_phone_and_is_accessible(tmp_path, browser):
    found = inspect_data(open_prepared(make_prepared(tmp_path / "data")), read_images=False)
    (tmp_path / "page.html").write_text(page(found, []))
    check_phone(browser, tmp_path / "page.html")
    assert faults(browser, tmp_path / "page.html", contrast=False) == []
