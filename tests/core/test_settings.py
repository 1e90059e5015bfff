"""The first complaint about a configuration, as one line with its key and the nearest valid one."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError, field_validator

from retinabench.core.settings import Extended, Frozen, first_problem, flat, merged


class Inner(Frozen):
    rate: float = 0.1


class Outer(Frozen):
    epochs: int
    inner: Inner = Inner()
    table: Any = None

    @field_validator("table")
    @classmethod
    def _of_its_own_class(cls, value):
        return None if value is None else Inner.model_validate(value)


def complaint(**given):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(given)
    valid = {(): list(Outer.model_fields), ("inner",): ["rate"], ("table",): ["rate"]}
    return str(first_problem(caught.value, Path("run.toml"), lambda where: valid[tuple(where)]))


def test_an_unknown_key_names_the_nearest():
    text = complaint(epochs=1, inner={"rat": 2})
    assert "run.toml: unknown key 'inner.rat'" in text
    assert "rate" in text.partition("'inner.rat'")[2]


def test_a_missing_and_a_wrong_value():
    assert "run.toml: epochs: is missing" in complaint()
    assert "epochs: input should be a valid integer" in complaint(epochs="many")
    assert "(given: 'many')" in complaint(epochs="many")
    assert "inner.rate: input should be a finite number (given: inf)" in complaint(
        epochs=1, inner={"rate": float("inf")}
    )


def test_the_complaint_of_a_table_with_its_own_class_is_unwrapped():
    assert "unknown key 'table.raet'" in complaint(epochs=1, table={"raet": 2})


def test_a_table_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Inner().rate = 2


class Later(Extended):
    _later = ("new",)

    old: int = 1
    new: int = 2


def test_later_settings_are_left_out_at_their_defaults():
    assert Later().model_dump() == {"old": 1}
    assert Later(new=3).model_dump(mode="json") == {"old": 1, "new": 3}
    assert Later.model_validate(Later(new=3).model_dump()) == Later(new=3)


def test_nested_tables_are_laid_over_each_other_and_flattened():
    tree = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    laid = merged(tree, {"a": {"c": {"d": 4, "f": 5}}, "e": {"g": 6}})
    assert laid == {"a": {"b": 1, "c": {"d": 4, "f": 5}}, "e": {"g": 6}}
    assert tree["a"]["c"] == {"d": 2}
    assert dict(flat(laid)) == {"a.b": 1, "a.c.d": 4, "a.c.f": 5, "e.g": 6}
