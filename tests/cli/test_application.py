"""How verbs become an application: the help of each ends with its example and names its values."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated

from typer.testing import CliRunner

from retinabench.cli.application import add_verbs, application, argument, flag, option, with_options


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
