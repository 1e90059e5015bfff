"""The lines that `inspect` prints."""

from __future__ import annotations

import io
import os
import stat

import numpy as np
import pytest
from PIL import Image

from retinabench.cli.main import run
from retinabench.data.records import Records
from retinabench.data.synthetic.fundus import draw
from support.helpers import make_prepared, make_retinas, write_files

N, SIDE = 48, 64


HOSTILE = '<script>alert("1")</script>|`x`'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
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
    patients = np.array([f"p{k}" for k in range(N)])
    patients[8] = patients[9]  # train and test
    records = Records(
        image_id=np.array(names), patient_id=patients, eye=np.array(["left", "right"] * (N // 2)),
        grade=grade.astype(np.int8), domain=np.full(N, "in_domain"), split=split,
        source=np.array(names), p_referable=np.full(N, np.nan),
    )  # fmt: skip
    path = make_retinas(tmp_path_factory.mktemp("inspect") / "data", records, images)
    rows = [
        {"image_id": name, "sha256": f"{k:064x}", "bytes": 1000 + k, "width": 640, "height": 480}
        for k, name in enumerate(names)
    ]
    rows[1]["sha256"] = rows[0]["sha256"]
    rows[7] |= {"width": 6400, "height": 4800}
    rows.append({"image_id": "lost", "source": "a/<b>.jpg", "status": "bad", "reason": "is a broken image"})
    write_files(path, rows)
    return path


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
