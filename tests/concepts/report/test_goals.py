"""Goals from the command line and from TOML."""

from __future__ import annotations

import pytest

from retinabench.concepts.report.goals import parse_goals
from retinabench.core.errors import InputError

CONCEPTS = ("haemorrhage", "hard exudate")


def test_what_is_stated_for_one_concept_is_preferred():
    found = parse_goals(
        ["sensitivity=0.85", "sensitivity of hard exudate = 0.6", "specificity of haemorrhage=.9"], CONCEPTS
    )
    assert found == {
        "haemorrhage": {"sensitivity": 0.85, "specificity": 0.9},
        "hard exudate": {"sensitivity": 0.6},
    }
    assert parse_goals([], CONCEPTS) == {}
    assert parse_goals(["sensitivity of haemorrhage = 85 %"], CONCEPTS) == {
        "haemorrhage": {"sensitivity": 0.85}
    }
    assert parse_goals(["specificity of haemorrhage=.9"], CONCEPTS) == {"haemorrhage": {"specificity": 0.9}}


def test_a_file(tmp_path):
    path = tmp_path / "goals.toml"
    path.write_text('[all]\nsensitivity = 0.8\n["hard exudate"]\nspecificity = 0.7\n')
    found = parse_goals([str(path)], CONCEPTS)
    assert found == {
        "haemorrhage": {"sensitivity": 0.8},
        "hard exudate": {"sensitivity": 0.8, "specificity": 0.7},
    }
    with pytest.raises(InputError, match="twice"):
        parse_goals([str(path), "sensitivity=0.9"], CONCEPTS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sensitivity=85", "is no goal"),
        ("sensitivity=85%%", "is no goal"),
        ("sensitivity=100%", "is no goal"),
        ("sensitivity=true", "is no goal"),
        ("accuracy=0.9", "is no goal"),
        ("sensitivity of hemorrhage=0.9", "unknown concept 'hemorrhage'. Did you mean 'haemorrhage'"),
        ("absent.toml", "does not exist"),
    ],
)
def test_no_goal(text, says):
    with pytest.raises(InputError, match=says):
        parse_goals([text], CONCEPTS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("sensitivity = 0.85", "'sensitivity' is no table"),
        ("[all]\nsensitivity = '0.8'", "is no goal"),
        ("[all]\nsensitivity = true", "is no goal"),
        ("[all", "is not TOML"),
    ],
)
def test_no_file_of_goals(tmp_path, content, says):
    path = tmp_path / "goals.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=says):
        parse_goals([str(path)], CONCEPTS)
