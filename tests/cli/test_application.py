"""How verbs become an application: the help of each ends with its example and names its values."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Annotated

from rich.table import Table
from typer.testing import CliRunner

from retinabench.cli.application import (
    STANDARD_OUTPUT,
    ExitCode,
    add_verbs,
    application,
    argument,
    flag,
    option,
    print_notes,
    print_path,
    print_result,
    print_table,
    progress_of,
    say,
    say_error,
    with_options,
)
from retinabench.core.progress import QUIET


def verb(
    file: Annotated[str, argument("FILE", "What is read.")],
    seed: Annotated[int, option("--seed", "N", "Seed of everything random.", min=0)] = 0,
    quiet: Annotated[bool, flag("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Do one thing."""
    print(file, seed, quiet)


def other() -> None:
    """Do another thing."""


def app():
    made = application("What all this is for.")
    add_verbs(
        made, {"do": (verb, "retinabench do FILE --seed 3"), "rest": (other, "retinabench rest")}, "Work"
    )
    return made


def run(*words):
    return CliRunner().invoke(app(), list(words), env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})


def test_a_verb_gets_its_values():
    assert run("do", "a.csv", "--seed", "3", "-q").output == "a.csv 3 True\n"


def test_help_names_values_and_ends_with_the_example():
    for switch in ("-h", "--help"):
        text = run("do", switch).output
        assert "FILE" in text
        assert "--seed" in text
        assert "Seed of everything random." in text
        assert text.strip().splitlines()[-1].strip() == "Example: retinabench do FILE --seed 3"


def test_without_a_verb_the_groups_are_shown():
    text = run().output
    assert "What all this is for." in text
    assert "Work" in text
    assert "Do one thing." in text
    assert "Do another thing." in text


def test_a_value_below_its_limit_is_refused():
    found = run("do", "a.csv", "--seed", "-1")
    assert found.exit_code == 2
    assert "--seed" in found.output


@dataclasses.dataclass(frozen=True)
class Settings:
    """Two options and a field that is none."""

    size: Annotated[int, "help"] = 3
    name: Annotated[str | None, "help"] = None
    inner: bool = False


def test_annotated_fields_become_options_of_the_verb():
    @with_options(Settings, "chosen")
    def verb(chosen: Settings, seed: int = 0) -> tuple[Settings, int]:
        """Do it."""
        return chosen, seed

    parameters = inspect.signature(verb).parameters
    assert list(parameters) == ["size", "name", "seed"]
    assert parameters["size"].default == 3
    assert parameters["name"].annotation == Annotated[str | None, "help"]
    assert verb.__doc__ == "Do it."
    assert verb(seed=1, size=4, name=None) == (Settings(4), 1)


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
