import json

import pytest

import retinabench as rb
from retinabench.metrics.clinical.screening_table import policy_grid
from retinabench.reports.clinic import render
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.pages import ROWS, cells, explorer
from support.reading_pages import without_script
from support.screened import screened

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def screening():
    part = screened(60, camera_drop=2.0)
    changed = rb.Predictions(
        [f"{HOSTILE}{k}" for k in range(len(part))], part.label, part.prob, grade=part.grade, domain=part.domain, split=part.split,
        subgroups={"<i>": [one.replace("A", "<img src=x>") for one in part.subgroups["camera"]]},
    )  # fmt: skip
    report = rb.clinic(changed, 0.35, referral_rate=0.2)
    return report, policy_grid(changed, report.stated)


def test_nothing_in_the_file_ends_the_script(screening, undrawn):
    report, grid = screening
    page = render(report, grid)
    assert "<script" not in without_script(page)
    assert "alert(1)</script" not in page
    assert "<img src" not in page
    assert "&lt;img src=x&gt;" in page
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
