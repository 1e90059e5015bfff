"""The sliders in a browser: they show the texts of `policies.json`, whatever the file holds, and need no script to be left out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

import retinabench as rb
from retinabench.metrics.policies.grid import policy_grid
from retinabench.reports.clinic import explore
from retinabench.reports.clinic.explore import ROWS, explore_json
from retinabench.reports.clinic.page import render, write_clinic
from support.screened import screened

BROWSER = next(
    (found for name in ("chromium", "google-chrome", "chromium-browser") if (found := shutil.which(name))),
    None,
)
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
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert '<section id="explore" aria-labelledby="explore-heading" hidden>' in page
    assert "<script" not in render(report)
    assert json.loads(explore_json(grid))["sets"][0]["images"][0][0].startswith(HOSTILE)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
def test_a_browser_shows_the_pair_of_the_link(screening, tmp_path, monkeypatch):
    """Also where more images are missed than are listed: the number is that of all."""
    report, grid = screening
    monkeypatch.setattr(explore, "MOST_IMAGES", 2)
    page = write_clinic(report, tmp_path, grid)
    group, i, j = 1, 2, 7
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom",
         f"{page.as_uri()}#explore=1,{group},{i},{j}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    shown = done.stdout.replace("\N{NO-BREAK SPACE}", " ").replace("&nbsp;", " ")
    assert '<section id="explore" aria-labelledby="explore-heading">' in shown  # no longer hidden
    rows = re.search(r'<tbody id="explore-rows">(.*?)</tbody>', shown, flags=re.DOTALL)[1]
    cells = [unescape(text) for text in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", rows)]
    texts = json.loads(explore_json(grid))
    chosen = texts["sets"][1]["groups"][group]["cells"]
    a, b = texts["frozen"]
    assert cells == [
        part
        for name, here, frozen in zip(ROWS, chosen[i][j], chosen[a][b], strict=True)
        for part in (name, here, frozen)
    ]
    numbers = json.loads((tmp_path / "policies.json").read_text())
    one = numbers["sets"]["shifted"][list(grid.outcomes["shifted"])[group]][i][j]
    assert cells[1].startswith(f"{100 * one['sensitivity']['value']:.0f}")
    missed = sum(image.missed(i, j) for image in grid.images["shifted"])
    listed = sum(image.missed(i, j) for image in grid.images["shifted"][:2])
    assert missed > listed
    assert f"of all shifted images: {missed} ({listed} are listed)</summary>" in shown
