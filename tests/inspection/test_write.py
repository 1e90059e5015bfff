"""A small study with every kind of fault, from the folder to the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from retinabench.cli.main import run
from retinabench.data.prepared.folder import open_prepared
from retinabench.inspection.duplicates import CopyGroup, CopyPair
from retinabench.inspection.inspection import inspect_data
from retinabench.inspection.write import write_inspection
from support.faulty_images import HOSTILE, N
from support.reading_pages import without_script


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("inspection")
    assert run(["inspect", str(folder), "--out", str(out), "-q"]) == 0
    return out


def test_every_fault_is_in_the_json(written):
    found = json.loads((written / "inspection.json").read_text())
    assert found["schema"] == "retinabench.inspection/1"
    groups = {tuple(image["image_id"] for image in group["images"]): group for group in found["duplicates"]}
    assert set(groups) == {(HOSTILE, "i01"), ("i02", "i03")}
    exact, near = groups[HOSTILE, "i01"], groups["i02", "i03"]
    assert (exact["kind"], exact["across_splits"], exact["conflicting_grades"]) == ("equal bytes", True, True)
    assert (near["kind"], near["across_splits"], near["conflicting_grades"]) == ("same retina", False, False)
    [pair] = near["pairs"]
    assert (pair["images"], pair["kind"], pair["alignment"]["mirrored"]) == (
        ["i02", "i03"],
        "same retina",
        False,
    )
    assert pair["alignment"]["quarter"] > 0.48
    assert [one["alignment"] for one in exact["pairs"]] == [None]
    assert found["leaks"] == [{"splits": ["train", "test"], "patients": 1, "images": 1, "fellow_eyes": 1}]
    outliers = {(o["image_id"], o["measure"]): o["what"] for o in found["outliers"]}
    assert outliers["i05", "brightness"] == "dark"
    assert outliers["i07", "original size"] == "many pixels"
    assert found["bad_files"] == [{"image_id": "lost", "source": "a/<b>.jpg", "reason": "is a broken image"}]
    assert [(c["width"], c["images"]) for c in found["cameras"]] == [(640, N - 1), (6400, 1)]


def test_the_page_stands_alone_and_escapes_what_it_shows(written):
    page = (written / "index.html").read_text()
    assert "&lt;script&gt;alert" in page
    assert "<script" not in without_script(page)
    assert "a/&lt;b&gt;.jpg" in page
    assert set(re.findall(r'(?:src|href)="([a-z]+:|#|[^"]*)', page)) <= {"data:", "#"}
    assert page.count("data:image/jpeg;base64,") >= N
    card = (written / "card.md").read_text()
    assert "<script" not in card
    line = next(line for line in card.splitlines() if "equal bytes" in line and line.startswith("|"))
    assert len(re.findall(r"(?<!\\)\|", line)) == 7  # six columns, whatever the names hold


def test_pairs_that_differ_come_first_and_they_alone_are_marked(folder, tmp_path):
    found = inspect_data(open_prepared(folder), read_images=False)
    pairs = tuple(CopyPair(rows, "equal pixels") for rows in ((10, 11), (10, 12), (11, 12)))
    mixed = CopyGroup((10, 11, 12), "equal pixels", pairs, ("train", "train", "test"), (1, 1, 1))
    plain = CopyGroup(
        (20, 21), "equal pixels", (CopyPair((20, 21), "equal pixels"),), ("train", "train"), (0, 0)
    )
    write_inspection(replace(found, groups=[mixed, plain]), tmp_path)
    problems = (
        (tmp_path / "index.html").read_text().partition("Copies, in pairs")[2].partition("</section>")[0]
    )
    shown = re.findall(r'class="card">(i\d\d)<br><span class="(\w+)"', problems)[:8]
    names, marks = zip(*shown, strict=True)
    # The worst pair of each group, then the others.
    assert names == ("i10", "i12", "i20", "i21", "i11", "i12", "i10", "i11")
    assert marks == ("bad", "bad", "id", "id", "bad", "bad", "id", "id")


def test_a_sheet_per_grade_and_for_copies_and_outliers(written):
    sheets = {path.name for path in written.glob("*.png")}
    assert sheets == {*(f"sheet-grade-{g}.png" for g in range(5)), "sheet-copies.png", "sheet-outliers.png"}
    for name in sheets:
        with Image.open(written / name) as sheet:
            assert sheet.width == 1030
            assert np.asarray(sheet).std() > 10


def test_where_only_labels_are_known_no_grade_is_shown(folder, tmp_path, capsys):
    """The records then hold placeholders for grades, which must not be shown as grades."""
    labelled = tmp_path / "labelled"
    shutil.copytree(folder, labelled)
    about = json.loads((labelled / "dataset.json").read_text()) | {
        "settings": {"columns": {"label": "referable"}}
    }
    (labelled / "dataset.json").write_text(json.dumps(about))
    out = tmp_path / "out"
    assert run(["inspect", str(labelled), "--out", str(out), "-q"]) == 0
    said = capsys.readouterr().out
    label = open_prepared(labelled).label
    (line,) = (line for line in said.splitlines() if line.startswith("  test:"))
    test = label[open_prepared(labelled).records.split == "test"]
    assert line.endswith(f"labels 0-1: {(test == 0).sum()}/{(test == 1).sum()}")
    found = json.loads((out / "inspection.json").read_text())
    assert {image["label"] for group in found["duplicates"] for image in group["images"]} <= {0, 1}
    assert {path.name for path in out.glob("sheet-label-*")} == {"sheet-label-0.png", "sheet-label-1.png"}
    assert "Images by label" in (out / "index.html").read_text()
    # Apart from the data set's own card, which explains what grades are.
    texts = [
        said,
        (out / "inspection.json").read_text(),
        (out / "card.md").read_text().partition("## Splits")[2],
    ]
    assert not [text for text in texts if "grade" in text.lower()]


def test_the_same_folder_and_seed_give_the_same_bytes_and_another_seed_other_images(
    folder, written, tmp_path
):
    for seed in (0, 1):
        assert (
            run(["inspect", str(folder), "--out", str(tmp_path / str(seed)), "--seed", str(seed), "-q"]) == 0
        )
    for path in written.iterdir():
        assert path.read_bytes() == (tmp_path / "0" / path.name).read_bytes(), path.name
    assert (written / "inspection.json").read_bytes() == (tmp_path / "1" / "inspection.json").read_bytes()


def test_reading_images_never_loads_torch(folder, tmp_path):
    code = (
        "import sys; from retinabench.cli.main import run; "
        f"assert run(['inspect', {str(folder)!r}, '--out', {str(tmp_path / 'out')!r}, '-q']) == 0; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
