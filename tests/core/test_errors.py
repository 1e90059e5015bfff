import csv
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinabench.core import errors
from retinabench.core.errors import (
    InputError,
    csv_text,
    inside,
    kept_inside,
    plain_cell,
    shown,
    told_apart,
    unquoted,
    visible,
)
from retinabench.core.workspace import Workspace


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", "", "a\\b", "a\0b", None, 3])
def test_a_manifest_names_files_of_its_own_folder_only(tmp_path, name):
    with pytest.raises(InputError, match="not a name in it"):
        inside(tmp_path, name)


def test_a_link_out_of_the_folder_is_refused_and_one_within_it_is_not(tmp_path):
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("secret")
    (folder / "real").write_text("x")
    (folder / "out").symlink_to(secret)
    (folder / "within").symlink_to("real")
    assert inside(folder, "within") == folder / "within"
    with pytest.raises(InputError, match="leads out of its folder"):
        inside(folder, "out")
    assert kept_inside(folder, folder / "absent") == folder / "absent"


def test_what_is_written_in_place_follows_no_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("before")
    (tmp_path / "log").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("log", "pipe"):
        with pytest.raises(InputError, match="is not written to"):
            errors.open_in_place(tmp_path / name, os.O_WRONLY | os.O_APPEND)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".lock").symlink_to(victim)
    with pytest.raises(Exception, match=r"link|symbolic"), Workspace(folder, "run").lock():
        pass
    assert victim.read_text() == "before"


def test_paths_are_shown_without_the_folders_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "a" / "b.csv") == "a/b.csv"
    assert shown("/home/alice/runs/map/predictions.parquet") == "map/predictions.parquet"
    assert shown("../../alice/x.csv") == "alice/x.csv"
    assert shown("runs/x.csv") == "runs/x.csv"
    assert told_apart(["/h/a/x.csv", "/h/b/x.csv", "/h/b/y.csv"]) == ["a/x.csv", "b/x.csv", "y.csv"]
    assert told_apart(["/h/a/x", "/h/a/x", Path("/g/a/x")]) == ["h/a/x", "h/a/x", "g/a/x"]
    assert told_apart([]) == []


TEXT = st.text(st.sampled_from("'=+-@\t\r10.e a＝,\"\n"), max_size=6)


def test_what_a_terminal_would_execute_is_spelled_out():
    assert visible("\x1b[2J\x07a\u202eb\x9b") == "\\x1b[2J\\x07a\\u202eb\\x9b"
    assert visible("é\N{NO-BREAK SPACE}日\n\t👁") == "é\N{NO-BREAK SPACE}日\n\t👁"


def test_no_cell_begins_a_formula_and_numbers_and_plain_text_stay():
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "＝1", "'=1", "-"):
        assert plain_cell(text) == f"'{text}"
    for text in ("-0.5", "+1e-3", "a=b", "'tis", ""):
        assert plain_cell(text) == text


@given(TEXT)
def test_unquoted_is_the_inverse(text):
    assert unquoted(plain_cell(text)) == text


def test_csv_quotes_text_and_leaves_numbers():
    rows = list(csv.reader(io.StringIO(csv_text([["=a", 'b"c\x1b'], [-0.5, "x,=y"]]), newline="")))
    assert rows == [["'=a", 'b"c\\x1b'], ["-0.5", "x,=y"]]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "{", '{"a": "\\ud800"}', '{"a": ' * 5000, '{"a": 1' + "0" * 5000 + "}",
        '{"a": 1' + "0" * 400 + "}",
    ],
)  # fmt: skip
def test_what_is_no_json_object_that_can_be_written_again_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - half a dozen messages of the standard library
        errors.json_object(text)
