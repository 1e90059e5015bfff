"""The lines that `inspect` prints."""

from __future__ import annotations

import os
import stat

from retinabench.cli.main import run
from support.helpers import make_prepared


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
