"""The lines that `inspect` prints."""

from __future__ import annotations

import os
import stat

import pytest

from retinabench.cli.main import run
from support.helpers import make_prepared

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


def test_one_is_counted_in_the_singular(tmp_path, capsys):
    (tmp_path / "p.csv").write_text("image_id,patient_id,label,prob\na,p,1,0.5\n")
    assert run(["inspect", str(tmp_path / "p.csv")]) == 0
    assert "in_domain test: 1 image, 1 patient, 1 referable" in capsys.readouterr().out


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
