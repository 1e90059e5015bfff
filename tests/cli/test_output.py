"""What every verb gives back: JSON alone on standard output, notes once, and names that cannot command a terminal."""

from __future__ import annotations

import json

from rich.table import Table

from retinabench.cli.output import (
    STANDARD_OUTPUT,
    ExitCode,
    print_notes,
    print_path,
    print_result,
    print_table,
    progress_of,
    say,
    say_error,
)
from retinabench.core.progress import QUIET

RED = "\x1b[31m"


def table(text):
    found = Table()
    found.add_column("name")
    found.add_row(text)
    return found


def test_json_on_standard_output_stands_alone(capsys):
    print_result(table("shown"), STANDARD_OUTPUT, lambda: {"auroc": 0.5})
    print_path(STANDARD_OUTPUT, STANDARD_OUTPUT)
    assert json.loads(capsys.readouterr().out) == {"auroc": 0.5}


def test_json_in_a_file_leaves_the_table(tmp_path, capsys):
    print_result(table("shown"), tmp_path / "r.json", lambda: {"auroc": 0.5})
    print_path(tmp_path / "r.json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == {"auroc": 0.5}
    out = capsys.readouterr().out
    assert "shown" in out
    assert out.splitlines()[-1] == str(tmp_path / "r.json")


def test_the_content_of_a_file_that_nobody_asked_for_is_not_made(capsys):
    print_result(table("shown"), None, lambda: 1 / 0)
    assert "shown" in capsys.readouterr().out


def test_control_characters_are_spelled_out_everywhere(capsys):
    print_table(table(f"a{RED}b"))
    say(f"a{RED}b")
    say_error(f"a{RED}b")
    print_notes([f"a{RED}b"])
    found = capsys.readouterr()
    assert "\x1b" not in found.out
    assert RED not in found.err
    assert found.out.count("[31mb") == 2
    assert found.err.count("[31mb") == 2


def test_a_note_is_printed_once_and_on_standard_error(capsys):
    print_notes(["first", "second", "first"])
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.splitlines() == ["note: first", "note: second"]


def test_quiet_has_no_progress():
    assert progress_of(quiet=True) is QUIET
    assert progress_of(quiet=False) is not QUIET


def test_exit_codes_are_those_of_the_documentation():
    assert {one.name: int(one) for one in ExitCode} == {
        "DONE": 0, "FAILED": 1, "WRONG_INPUT": 2, "REFUSED": 3, "REFUTED": 4, "INTERRUPTED": 130,
    }  # fmt: skip
