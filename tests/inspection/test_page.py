import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retinabench.cli.main import run
from retinabench.data.dataset import make_records
from retinabench.data.prepared import open_prepared
from retinabench.data.synthetic.fundus import draw
from retinabench.inspection import page as module
from retinabench.inspection.alignment import Alignment
from retinabench.inspection.duplicates import LEAST, CopyGroup, CopyPair
from retinabench.inspection.inspection import Outlier, inspect_data
from retinabench.inspection.page import MOST_ROWS, evidence, markdown, page, tables
from support.browsers import check_page
from support.helpers import make_prepared, make_retinas, write_files
from support.reading_pages import without_script

N, SIDE = 48, 64
HOSTILE = '<script>alert("1")</script>|`x`'


def write_faulty(folder: Path) -> Path:
    """48 drawn retinas: 1 copies 0 across splits with another grade, 3 is 2 saved again, 5 is black."""
    images = np.stack([draw(k, size=SIDE, masks=False).image for k in range(N)])
    images[1] = images[0]
    with io.BytesIO() as out:
        Image.fromarray(images[2]).save(out, "JPEG", quality=90)
        images[3] = np.asarray(Image.open(out).convert("RGB"))
    images[5] = 0
    split = np.where(np.arange(N) % 4 == 1, "test", "train")
    grade = np.arange(N) % 5
    grade[[2, 3]] = 2
    names = [f"i{k:02d}" for k in range(N)]
    names[0] = HOSTILE
    patients = [f"p{k}" for k in range(N)]
    patients[8] = patients[9]  # train and test
    records = make_records(names, grade, patient_id=patients, eye=["left", "right"] * (N // 2), split=split)
    path = make_retinas(folder, records, images)
    about = [{"sha256": f"{k:064x}", "bytes": 1000 + k, "width": 640, "height": 480} for k in range(len(names))]
    rows = [{"image_id": name, **one} for name, one in zip(names, about, strict=True)]
    rows[1]["sha256"] = rows[0]["sha256"]
    rows[7] |= {"width": 6400, "height": 4800}
    rows.append({"image_id": "lost", "source": "a/<b>.jpg", "status": "bad", "reason": "is a broken image"})
    write_files(path, rows)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_faulty(tmp_path_factory.mktemp("inspect") / "data")


def test_long_tables_are_cut_and_say_so(found):
    outliers = [Outlier(0, "brightness", -4.0 - k, "dark") for k in range(MOST_ROWS + 3)]
    table = {one.caption: one for one in tables(replace(found, outliers=outliers))}["Outliers"]
    [block] = table.blocks
    assert len(block.rows) == MOST_ROWS
    assert table.note.startswith("The first 20 of 23; all are in inspection.json.")


@pytest.mark.parametrize(
    ("alignment", "said"),
    [
        (None, ""),
        (Alignment(0.9, 0.8, 0.95, False, 0.4, 1.0), ""),
        (Alignment(0.9, 0.8, 0.95, False, -179.7, 1.0), ", turned by 180°"),
        (Alignment(0.9, 0.8, 0.95, True, -90.2, 0.94), ", mirrored, turned by −90°, scaled by 0.94"),
    ],
)
def test_the_evidence_says_how_the_second_image_lies_on_the_first(alignment, said):
    assert evidence(CopyPair((0, 1), LEAST, alignment)) == LEAST + said


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return inspect_data(open_prepared(make_prepared(tmp_path_factory.mktemp("easy") / "data")), read_images=False)


def test_page_and_markdown_have_the_same_findings_and_tables(found):
    html, card = page(found, []), markdown(found, [])
    for one in tables(found):
        assert f"<caption><span>{one.caption}</span></caption>" in html
        assert f"## {one.caption}" in card
    assert html.count('<p class="finding') == card.partition("\n## Splits")[0].count("\n- **")


def test_the_page_fits_a_phone_and_is_accessible(found, tmp_path, browser):
    (tmp_path / "page.html").write_text(page(found, []))
    check_page(browser, tmp_path / "page.html")


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
    assert (pair["images"], pair["kind"], pair["alignment"]["mirrored"]) == (["i02", "i03"], "same retina", False)
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
    assert len(re.findall(r"(?<!\\)\|", line)) == 8  # seven columns, whatever the names hold


def test_pairs_that_differ_come_first_and_they_alone_are_marked(folder, tmp_path):
    found = inspect_data(open_prepared(folder), read_images=False)
    pairs = tuple(CopyPair(rows, "equal pixels") for rows in ((10, 11), (10, 12), (11, 12)))
    mixed = CopyGroup((10, 11, 12), "equal pixels", pairs, ("train", "train", "test"), (1, 1, 1))
    plain = CopyGroup((20, 21), "equal pixels", (CopyPair((20, 21), "equal pixels"),), ("train", "train"), (0, 0))
    module.write_inspection(replace(found, groups=[mixed, plain]), tmp_path)
    problems = (tmp_path / "index.html").read_text().partition("Copies, in pairs")[2].partition("</section>")[0]
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
    about = json.loads((labelled / "dataset.json").read_text()) | {"settings": {"columns": {"label": "referable"}}}
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
    texts = [said, (out / "inspection.json").read_text(), (out / "card.md").read_text().partition("## Splits")[2]]
    assert not [text for text in texts if "grade" in text.lower()]


def test_another_process_writes_the_same_bytes_without_torch(folder, written, tmp_path):
    code = (
        "import sys; from retinabench.cli.main import run; "
        f"assert run(['inspect', {str(folder)!r}, '--out', {str(tmp_path / '0')!r}, '-q']) == 0; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
    for path in written.iterdir():
        assert path.read_bytes() == (tmp_path / "0" / path.name).read_bytes(), path.name


ABOUT = '{"run": {}, "fingerprint": "0123456789abcdef", "version": "1"}'


def test_without_out_a_read_only_folder_tells_what_its_tables_know(folder, capsys):
    before = sorted(os.listdir(folder))
    mode = folder.stat().st_mode
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert run(["inspect", str(folder)]) == 0
    finally:
        folder.chmod(mode)
    said = capsys.readouterr().out
    for words in ("48 images", "1 equal bytes", "different splits", "fellow eye", "--out DIR"):
        assert words in said
    assert sorted(os.listdir(folder)) == before


def test_a_damaged_table_of_files_and_a_senseless_out_are_one_line(tmp_path, capsys):
    data = make_prepared(tmp_path / "data")
    (data / "files.parquet").write_bytes(b"PAR1 not")
    assert run(["inspect", str(data)]) == 2
    assert "files.parquet" in capsys.readouterr().err
    (tmp_path / "p.csv").write_text("image_id,label,prob\na,1,0.5\nb,0,0.2\n")
    assert run(["inspect", str(tmp_path / "p.csv"), "--out", str(tmp_path / "o")]) == 2
    assert "--out" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(("about", "rows", "says"), [
    ("{bad", "", "run.json"), ('{"run": {}}', "", "run.json"), ("[]", "", "run.json"), (ABOUT, "", "metrics.jsonl"),
    (ABOUT, '{"epoch": 1, "loss": nu', "metrics.jsonl"), (ABOUT, '{"loss": "low"}', "metrics.jsonl"),
])  # fmt: skip
def test_a_damaged_run_is_one_line(about, rows, says, tmp_path, capsys):
    (tmp_path / "run.json").write_text(about)
    (tmp_path / "metrics.jsonl").write_text(rows)
    assert run(["inspect", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert f"{says}: is damaged" in said.err
    assert not said.out


def test_where_the_page_cannot_be_written_is_refused_before_the_images_are_read(tmp_path, capsys):
    data = make_prepared(tmp_path / "data")
    before = sorted(os.listdir(data))
    assert run(["inspect", str(data), "--out", str(data)]) == 2
    said = capsys.readouterr()
    assert "is the data set itself" in said.err
    assert not said.out
    assert sorted(os.listdir(data)) == before
    (tmp_path / "file").touch()
    assert run(["inspect", str(data), "--out", str(tmp_path / "file")]) == 2
    assert not capsys.readouterr().out
