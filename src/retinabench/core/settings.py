"""The base class of every configuration table, and one line for what is wrong in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from retinabench.core.errors import InputError, nearest


class Frozen(BaseModel):
    """A configuration table that refuses unknown keys and cannot be changed after construction."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


def first_problem(
    error: ValidationError, file: Path | None, keys: Callable[[Sequence[str]], Sequence[str]]
) -> InputError:
    """Return pydantic's first complaint as one line.

    Args:
        error: The complaints about a configuration.
        file: Where it was read.
        keys: Path of a table -> its valid keys, of which the nearest one is named.
    """
    problem = error.errors()[0]
    where = [str(part) for part in problem["loc"]]
    # A method's table is checked by its own class: unwrap the complaint, however deep members are nested.
    while isinstance(inner := problem.get("ctx", {}).get("error"), ValidationError):
        problem = inner.errors()[0]
        where += [str(part) for part in problem["loc"]]
    key = ".".join(where)
    if problem["type"] == "extra_forbidden":
        return InputError(f"unknown key '{key}'", file=file, hint=nearest(where[-1], keys(where[:-1])))
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if isinstance(problem["input"], (dict, BaseModel)) else f" (given: {problem['input']!r})"
    if problem["type"] == "missing":
        message, given = "is missing", ""
    elif key:
        message = f"{message[:1].lower()}{message[1:]}"
    return InputError(f"{key}: {message}{given}" if key else f"{message}{given}", file=file)
