"""The base classes of configuration tables, nested tables, and one line for what is wrong in one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from retinabench.core.errors import InputError, check, nearest
from retinabench.core.results import JsonObject

Content = TypeVar("Content")
MOST_BYTES = 2**22  # of a JSON file that is read as a whole


class Frozen(BaseModel):
    """A configuration table that refuses unknown keys and cannot be changed after construction."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class Extended(Frozen):
    """A table to which settings were added later: they are left out at their defaults, so that the hash of a run stays what it was."""

    _later: ClassVar[Collection[str]] = ()

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        content: JsonObject = handler(self)
        defaults = {name: type(self).model_fields[name].default for name in self._later}
        return {key: one for key, one in content.items() if key not in defaults or one != defaults[key]}


def flat(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables with their dotted keys, which begin with `prefix`."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def merged(tree: Mapping[str, object], other: Mapping[str, object]) -> JsonObject:
    """Return nested tables with those of `other` laid over them."""
    result = dict(tree)
    for key, value in other.items():
        mine = result.get(key)
        result[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def first_problem(
    error: ValidationError,
    file: Path | None,
    keys: Callable[[Sequence[str]], Sequence[str]],
    set_by_hand: Collection[str] = (),
) -> InputError:
    """Return the first error of pydantic as one line."""
    problem = error.errors()[0]
    where = [str(part) for part in problem["loc"]]
    # A method's table is checked by its own class: unwrap the complaint, however deep members are nested.
    while isinstance(inner := problem.get("ctx", {}).get("error"), ValidationError):
        problem = inner.errors()[0]
        where += [str(part) for part in problem["loc"]]
    key = ".".join(where)
    if key in set_by_hand:
        file = None
    if problem["type"] == "extra_forbidden":
        return InputError(f"unknown key '{key}'", file=file, hint=nearest(where[-1], keys(where[:-1])))
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if isinstance(problem["input"], (dict, BaseModel)) else f" (given: {problem['input']!r})"
    if problem["type"] == "missing":
        message, given = "is missing", ""
    elif key:
        message = f"{message[:1].lower()}{message[1:]}"
    return InputError(f"{key}: {message}{given}" if key else f"{message}{given}", file=file)


def read_checked(
    path: Path, validate: Callable[[Any], Content], hint: str | None = None, *, named: bool = False
) -> Content | None:
    """Read a JSON file by its checksum and return what `validate` makes of it, None without a file; raises `InputError` where it is damaged or refused."""
    try:
        if check(path, hint, named=named).stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        return validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except InputError:
        raise
    except ValidationError as error:
        problem = str(first_problem(error, None, lambda _: []))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        problem = str(error)
    raise InputError(f"is damaged ({problem.rstrip('.')})", file=path, hint=hint)


def read_toml(file: Path) -> JsonObject:
    """Return the content of a TOML file; raises `InputError` where it is absent, unreadable or not TOML."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError("does not exist", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=file, hint="Save it as UTF-8.") from None
    except ValueError as error:  # also of numbers of thousands of digits
        raise InputError(f"is not TOML: {error}", file=file) from None
    except RecursionError:
        raise InputError("is not TOML of settings: its tables or lists are nested too deep", file=file) from None
