"""The table of original files."""

from __future__ import annotations

import json

from retinabench.cli.main import run
from support.helpers import make_prepared


def test_a_folder_without_a_table_of_files_is_inspected_all_the_same(tmp_path, capsys):
    data = make_prepared(tmp_path / "data")
    (data / "files.parquet").unlink(missing_ok=True)
    assert run(["inspect", str(data), "--out", str(tmp_path / "out"), "-q"]) == 0
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (found["read_files"], found["cameras"], found["bad_files"]) == (False, [], [])
    assert "No copies." in capsys.readouterr().out
