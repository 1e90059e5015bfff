"""Where a Run's settings come from: a TOML file or a preset, and `key=value` words that change it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from copy import deepcopy
from pathlib import Path
from typing import Any

from retinabench.core.errors import InputError, nearest
from retinabench.experiments.preset_files import canonical, presets


def find(source: str | Path, optimizer_keys: Collection[str]) -> tuple[Path, dict[str, Any]]:
    """Return the file that holds a configuration, and its content, for the caller to change.

    `source` is a path ending in .toml, or the name of a preset, read with the optimiser's keys (`presets.presets`).
    Raises `InputError` where there is none, or the file is not TOML.
    """
    if Path(source).suffix == ".toml":
        return Path(source), read_toml(Path(source))
    known = presets(optimizer_keys)
    name = canonical(str(source))
    if name not in known:
        raise InputError(f"unknown preset '{source}'", hint=f"{nearest(name, known)} Or name a .toml file.")
    file, content = known[name]
    return file, deepcopy(content)


def override(tree: dict[str, Any], word: str) -> None:
    """Set `a.b=value` in the tree; the value is read as TOML, or taken as text.

    Raises `InputError` where `word` is nothing of the kind.
    """
    path, equals, text = word.partition("=")
    if not equals or not path:
        raise InputError(f"'{word}' is not key=value", hint="For example: optimizer.lr=0.01")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *tables, key = path.split(".")
    for table in tables:
        inner = tree.setdefault(table, {})
        # `method = "map"` is short for a table with that name.
        tree[table] = inner if isinstance(inner, dict) else {"name": inner}
        tree = tree[table]
    tree[key] = value


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raises `InputError` where it is absent, unreadable or not TOML."""
    try:
        with open(file, "rb") as handle:
            return tomllib.load(handle)
    except FileNotFoundError:
        raise InputError("does not exist", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not TOML: {error}", file=file) from None
